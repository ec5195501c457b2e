#include "econ/capacity.h"

#include <algorithm>
#include <vector>

namespace tare::econ {
namespace {

// Share of the way from `low` to `high` at which a latency reaches its limit; 1 when it does not.
double Crossing(double low, double high, double limit) {
  if (high <= limit || high <= low) return 1;
  return std::clamp((limit - low) / (high - low), 0.0, 1.0);
}

}  // namespace

bool Meets(const LoadPoint& point, const ServiceLevel& level) {
  return point.ttft_p95_seconds <= level.ttft_p95_seconds &&
         point.itl_p95_seconds <= level.itl_p95_seconds &&
         point.e2e_p95_seconds <= level.e2e_p95_seconds;
}

std::optional<Capacity> CapacityUnder(std::span<const LoadPoint> curve, const ServiceLevel& level) {
  std::vector<LoadPoint> points(curve.begin(), curve.end());
  std::sort(points.begin(), points.end(), [](const LoadPoint& a, const LoadPoint& b) {
    return a.requests_per_second < b.requests_per_second;
  });
  std::size_t met = 0;
  while (met < points.size() && Meets(points[met], level)) ++met;
  if (met == 0) return std::nullopt;
  const LoadPoint& last = points[met - 1];
  Capacity capacity{last.requests_per_second, last.goodput_share, false, met == points.size(),
                    last.tag};
  if (capacity.at_the_end) return capacity;
  const LoadPoint& next = points[met];
  const double share =
      std::min({Crossing(last.ttft_p95_seconds, next.ttft_p95_seconds, level.ttft_p95_seconds),
                Crossing(last.itl_p95_seconds, next.itl_p95_seconds, level.itl_p95_seconds),
                Crossing(last.e2e_p95_seconds, next.e2e_p95_seconds, level.e2e_p95_seconds)});
  if (share > 0) {
    capacity.requests_per_second += (next.requests_per_second - last.requests_per_second) * share;
    capacity.interpolated = true;
  }
  return capacity;
}

}  // namespace tare::econ
