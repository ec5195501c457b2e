// Penalties avoided by fewer false positives (SPEC row EC7): change of the rate in points of per
// cent, times the volume, times the cost of one case in points (the published formula takes
// 0.000412 per point and case). Amounts are in the caller's currency.
#pragma once

namespace tare::econ {

struct FalsePositivePenalty {
  double rate_before_percent = 0;
  double rate_after_percent = 0;
  double cases_per_year = 0;
  double cost_per_case_and_point = 0;
};

// What a rate costs a year: points * cases * cost.
double PenaltyPerYear(double rate_percent, double cases_per_year, double cost_per_case_and_point);

// (before - after) * cases * cost.
double PenaltyAvoidedPerYear(const FalsePositivePenalty& penalty);

}  // namespace tare::econ
