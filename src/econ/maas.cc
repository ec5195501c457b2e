#include "econ/maas.h"

#include <cmath>

namespace tare::econ {

double DiscountedCost(std::span<const YearCost> years, const Discounting& discounting) {
  std::vector<double> totals;
  totals.reserve(years.size());
  for (const YearCost& year : years) totals.push_back(year.total());
  return PresentValue(totals, discounting);
}

FittingConvention FitConvention(std::span<const double> flows, double rate_per_year,
                                double published, double tolerance) {
  FittingConvention fit;
  fit.start = PresentValue(flows, {rate_per_year, 1, Timing::kStart});
  fit.middle = PresentValue(flows, {rate_per_year, 1, Timing::kMiddle});
  fit.end = PresentValue(flows, {rate_per_year, 1, Timing::kEnd});
  if (std::abs(fit.end - published) <= tolerance) {
    fit.timing = Timing::kEnd;
  } else if (std::abs(fit.middle - published) <= tolerance) {
    fit.timing = Timing::kMiddle;
  } else if (std::abs(fit.start - published) <= tolerance) {
    fit.timing = Timing::kStart;
  } else if (auto irr = InternalRateOfReturn(published, flows, {0, 1, Timing::kEnd})) {
    fit.rate = irr->rate_per_year;
  }
  return fit;
}

}  // namespace tare::econ
