// The machine a measurement ran on, for the report.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace tare::advise {

struct Machine {
  std::string cpu;       // "INTEL(R) XEON(R) PLATINUM 8481C", empty when unknown
  int usable_cores = 0;  // that this process may run on
  std::uint64_t memory_bytes = 0;
  std::string system;  // "Linux 6.1.0 x86_64"
};

Machine ThisMachine();
nlohmann::json ToJson(const Machine& machine);

}  // namespace tare::advise
