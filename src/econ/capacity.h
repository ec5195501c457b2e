// What one instance can serve under a service level, from its measured load curve. Runs of the
// load tester give the points (rates in requests a second, latencies in seconds); simulated ones
// say so in their tag. Pure values.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>

namespace tare::econ {

struct LoadPoint {
  double requests_per_second = 0;  // completed
  double ttft_p95_seconds = 0;
  double itl_p95_seconds = 0;
  double e2e_p95_seconds = 0;
  double goodput_share = 1;  // of the completed requests that met the level
  std::string tag = "measured";
};

struct ServiceLevel {
  double ttft_p95_seconds = std::numeric_limits<double>::infinity();
  double itl_p95_seconds = std::numeric_limits<double>::infinity();
  double e2e_p95_seconds = std::numeric_limits<double>::infinity();
};

bool Meets(const LoadPoint& point, const ServiceLevel& level);

struct Capacity {
  double requests_per_second = 0;
  double goodput_share = 1;
  bool interpolated =
      false;                // between the last point that meets the level and the first that fails
  bool at_the_end = false;  // every point meets it: the instance may do more
  std::string tag;
};
// The highest rate up to which every measured point meets the level; between the last that does
// and the first that does not, the crossing of the latencies is interpolated linearly. Nothing when
// even the lowest rate misses it. Points may come in any order.
std::optional<Capacity> CapacityUnder(std::span<const LoadPoint> curve, const ServiceLevel& level);

}  // namespace tare::econ
