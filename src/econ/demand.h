// Demand over a week: how a day's requests spread over its hours. Pure values.
#pragma once

#include <array>
#include <span>
#include <vector>

namespace tare::econ {

inline constexpr int kHoursPerWeek = 168;

// Relative demand of each hour of the week, Monday 0 h first; the mean is 1.
struct DemandProfile {
  std::array<double, kHoursPerWeek> relative{};

  static DemandProfile Constant();
  // Repeats a day of 24 hours or takes a week of 168 as they are, scaled to mean 1.
  // The span must have 24 or 168 entries, none negative, not all zero.
  static DemandProfile FromHours(std::span<const double> hours);
  double peak() const;
};

// What costs depend on: equal hours grouped, and equal rises from one hour to the next (the week
// is a circle). A day that repeats has at most 24 of each, so a Monte Carlo walks few numbers.
struct DemandLevel {
  double relative = 0;
  double hours_per_week = 0;
};
struct DemandRise {
  double from = 0;
  double to = 0;
  double times_per_week = 0;
};
struct DemandShape {
  std::vector<DemandLevel> levels;
  std::vector<DemandRise> rises;
};
DemandShape ShapeOf(const DemandProfile& profile);

}  // namespace tare::econ
