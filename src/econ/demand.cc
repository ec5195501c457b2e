#include "econ/demand.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace tare::econ {

DemandProfile DemandProfile::Constant() {
  DemandProfile profile;
  profile.relative.fill(1);
  return profile;
}

DemandProfile DemandProfile::FromHours(std::span<const double> hours) {
  TARE_CHECK(hours.size() == 24 || hours.size() == kHoursPerWeek);
  const double mean =
      std::accumulate(hours.begin(), hours.end(), 0.0) / static_cast<double>(hours.size());
  TARE_CHECK(mean > 0);
  DemandProfile profile;
  for (std::size_t i = 0; i < profile.relative.size(); ++i) {
    profile.relative[i] = hours[i % hours.size()] / mean;
  }
  return profile;
}

double DemandProfile::peak() const { return *std::max_element(relative.begin(), relative.end()); }

DemandShape ShapeOf(const DemandProfile& profile) {
  std::map<double, double> hours;
  std::map<std::pair<double, double>, double> rises;
  double previous = profile.relative.back();
  for (double relative : profile.relative) {
    hours[relative] += 1;
    if (relative > previous) rises[{previous, relative}] += 1;
    previous = relative;
  }
  DemandShape shape;
  for (const auto& [relative, count] : hours) shape.levels.push_back({relative, count});
  for (const auto& [step, count] : rises) shape.rises.push_back({step.first, step.second, count});
  return shape;
}

}  // namespace tare::econ
