#include "econ/depreciation.h"

#include <algorithm>
#include <cmath>

#include "econ/discounting.h"

namespace tare::econ {

double StraightLinePerYear(const Asset& asset) {
  return (asset.price - asset.residual) / asset.life_years;
}

double CapitalRecoveryPerYear(const Asset& asset, double rate_per_year) {
  const double residual_today = asset.residual * std::pow(1 + rate_per_year, -asset.life_years);
  return (asset.price - residual_today) * CapitalRecoveryFactor(rate_per_year, asset.life_years);
}

double BookValue(const Asset& asset, double years) {
  const double written_off = StraightLinePerYear(asset) * std::clamp(years, 0.0, asset.life_years);
  return asset.price - written_off;
}

}  // namespace tare::econ
