// Self-built, hybrid or public cloud (SPEC row EC8): yearly totals of licence, infrastructure and
// operations, discounted. Amounts are in the caller's currency.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "econ/discounting.h"

namespace tare::econ {

struct YearCost {
  double licence = 0;
  double infrastructure = 0;
  double operations = 0;
  double total() const { return licence + infrastructure + operations; }
};

double DiscountedCost(std::span<const YearCost> years, const Discounting& discounting);

// How a published present value relates to its own flows.
struct FittingConvention {
  std::optional<Timing> timing;           // the usual timing that gives it, within the rounding
  std::optional<double> rate;             // else the year-end rate that would, if any does
  double start = 0, middle = 0, end = 0;  // what the usual timings give
};
// Tries every usual timing at `rate_per_year`; `tolerance` is the rounding of the published value.
FittingConvention FitConvention(std::span<const double> flows, double rate_per_year,
                                double published, double tolerance);

}  // namespace tare::econ
