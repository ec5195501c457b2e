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

// Equal hours grouped: what costs depend on when their order does not matter.
struct DemandLevel {
  double relative = 0;
  double hours_per_week = 0;
};
std::vector<DemandLevel> GroupLevels(const DemandProfile& profile);

}  // namespace tare::econ
