#include "econ/penalty.h"

namespace tare::econ {

double PenaltyPerYear(double rate_percent, double cases_per_year, double cost_per_case_and_point) {
  return rate_percent * cases_per_year * cost_per_case_and_point;
}

double PenaltyAvoidedPerYear(const FalsePositivePenalty& penalty) {
  return PenaltyPerYear(penalty.rate_before_percent - penalty.rate_after_percent,
                        penalty.cases_per_year, penalty.cost_per_case_and_point);
}

}  // namespace tare::econ
