#include "econ/complexity.h"

#include <algorithm>

namespace tare::econ {

Complexity OperationsComplexity(const Operations& operations) {
  constexpr double kLatencyCapSeconds = 30;
  Complexity result;
  result.from_alerts = 0.4 * (100 - operations.alert_coverage_percent);
  result.from_scale_out = 0.35 * std::min(operations.scale_out_latency_seconds, kLatencyCapSeconds);
  result.from_healing = 0.25 * (100 - operations.self_healing_percent);
  result.index = result.from_alerts + result.from_scale_out + result.from_healing;
  result.share_of_maximum = result.index / kComplexityMaximum;
  // The published bands leave (3.0, 3.1) open: it belongs to the higher one.
  result.band = result.index <= 3.0 ? "low" : result.index <= 6.5 ? "medium" : "high";
  return result;
}

}  // namespace tare::econ
