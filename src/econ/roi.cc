#include "econ/roi.h"

#include <cmath>

namespace tare::econ {
namespace {

// Calls use(q, quarter) for each quarter; powers by running products, the Monte Carlo's hot path.
template <typename Use>
void ForEachQuarter(const RoiInputs& in, Use use) {
  double growth = 1;
  double retained = 1;
  double unlearned = 1;
  for (int q = 0; q < in.quarters; ++q) {
    use(q, RoiQuarter{in.base_revenue_per_quarter * growth * in.revenue_share,
                      in.saving_base_per_quarter * in.replacement_rate * retained,
                      in.benefit_base_per_quarter * in.effectiveness * (1 - unlearned)});
    growth *= 1 + in.user_growth_per_quarter;
    retained *= in.saving_retention;
    unlearned *= in.learning_retention;
  }
}

}  // namespace

double RoiNpv(const RoiInputs& inputs) {
  const double step = std::sqrt(std::sqrt(1 / (1 + inputs.rate_per_year)));
  double factor = step;
  double sum = 0;
  ForEachQuarter(inputs, [&](int, const RoiQuarter& quarter) {
    sum += quarter.total() * factor;
    factor *= step;
  });
  return sum - inputs.outlay;
}

RoiResult ReturnOnInvestment(const RoiInputs& inputs) {
  RoiResult result;
  std::vector<double> flows;
  ForEachQuarter(inputs, [&](int, const RoiQuarter& quarter) {
    result.quarters.push_back(quarter);
    flows.push_back(quarter.total());
  });
  const Discounting quarterly{inputs.rate_per_year, 4, Timing::kEnd};
  result.npv = NetPresentValue(inputs.outlay, flows, quarterly);
  result.irr = InternalRateOfReturn(inputs.outlay, flows, quarterly);
  result.payback_years = PaybackYears(inputs.outlay, flows, {0, 4, Timing::kEnd});
  return result;
}

double RoiNpvWithPublishedSlip(const RoiInputs& inputs) {
  double sum = 0;
  ForEachQuarter(inputs, [&](int q, const RoiQuarter& quarter) {
    sum += quarter.total() / (std::pow(1 + inputs.rate_per_year, q + 1) / 4);
  });
  return sum - inputs.outlay;
}

}  // namespace tare::econ
