#include "econ/demand.h"

#include <algorithm>
#include <map>
#include <numeric>

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

std::vector<DemandLevel> GroupLevels(const DemandProfile& profile) {
  std::map<double, double> hours;
  for (double relative : profile.relative) hours[relative] += 1;
  std::vector<DemandLevel> levels;
  for (const auto& [relative, count] : hours) levels.push_back({relative, count});
  return levels;
}

}  // namespace tare::econ
