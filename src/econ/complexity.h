// The operations-complexity index of SPEC row EC4:
//   0.4 (100 - coverage) + 0.35 min(latency, 30) + 0.25 (100 - healing)
// with bands 0-3.0 (low), 3.1-6.5 (medium) and above (high).
//
// Published with the range 0-10, which the formula does not have: at coverage 0 %, latency 30 s or
// more and healing 0 % it reaches 40 + 10.5 + 25 = 75.5 (kComplexityMaximum). The three weights
// multiply points of per cent and seconds, so the bands only separate systems that are close to
// full coverage and healing; each answer therefore carries the share of the maximum too.
#pragma once

#include <string_view>

namespace tare::econ {

struct Operations {
  double alert_coverage_percent = 0;
  double scale_out_latency_seconds = 0;
  double self_healing_percent = 0;
};

struct Complexity {
  double index = 0;
  double from_alerts = 0;
  double from_scale_out = 0;
  double from_healing = 0;
  double share_of_maximum = 0;  // index / 75.5
  std::string_view band;        // "low", "medium", "high"
};

inline constexpr double kComplexityMaximum = 75.5;

Complexity OperationsComplexity(const Operations& operations);

}  // namespace tare::econ
