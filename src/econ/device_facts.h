// What a device can do at most: memory, bandwidth, peak rates, links, power, price. Every figure
// of the catalogue (catalog/hardware) carries its source and date; absent figures stay 0 and a
// reader of the struct must treat 0 as "not known".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tare::econ {

// Where a figure comes from.
struct Provenance {
  std::string figure;  // "memory", "bandwidth", ...
  std::string source;
  std::string date;         // ISO 8601, when it was read or valid
  bool unverified = false;  // not found again in that source
};

struct DeviceFacts {
  std::string name;
  std::vector<std::string> aliases;
  bool cpu = false;

  double memory_bytes = 0;
  double bandwidth_bytes_per_second = 0;
  // Dense peaks by the width of the operands.
  double fp32_flop_per_second = 0;
  double bf16_flop_per_second = 0;  // or FP16 where there is no BF16
  double fp8_flop_per_second = 0;
  double int8_op_per_second = 0;
  double fp4_flop_per_second = 0;
  // One direction, per device.
  double link_bytes_per_second = 0;  // between devices of one node (NVLink, UPI)
  double pcie_bytes_per_second = 0;
  double idle_watts = 0;
  double load_watts = 0;
  double price_usd_per_hour = 0;  // rented

  std::vector<Provenance> provenance;
};

// The peak that matrix multiplies with weights of this many bits can use: 4-bit weights are
// widened to 16 bits unless the device multiplies FP4 (`native` says the format is computed in).
double PeakFlopPerSecond(const DeviceFacts& device, std::string_view weight_precision);

}  // namespace tare::econ
