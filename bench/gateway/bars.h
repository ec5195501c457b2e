// What the gateway is held to, and whether a run of its benchmark showed it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tare::bench {

struct Bar {
  std::string what;
  std::string asked;  // "< 1 ms"
  std::string seen;
  bool met = false;
};

// From the benchmark's document, as far as its parts were run. Bars against nginx need nginx.
std::vector<Bar> JudgeBars(const nlohmann::json& document);
// One table, with the share of requests that failed and what other programs used meanwhile.
std::string BarTable(const std::vector<Bar>& bars, const nlohmann::json& document);

}  // namespace tare::bench
