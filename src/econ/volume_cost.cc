#include "econ/volume_cost.h"

namespace tare::econ {
namespace {

double MillionTokensPerYear(double tokens_per_day) { return tokens_per_day * kDaysPerYear / 1e6; }

}  // namespace

double CostPerYear(const VolumeCost& option, double tokens_per_day) {
  return option.fixed_per_year +
         option.cost_per_million_tokens * MillionTokensPerYear(tokens_per_day);
}

double AllInCostPerMillionTokens(const VolumeCost& option, double tokens_per_day) {
  return CostPerYear(option, tokens_per_day) / MillionTokensPerYear(tokens_per_day);
}

std::optional<BreakEven> BreakEvenVolume(const VolumeCost& a, const VolumeCost& b) {
  const double extra_fixed = b.fixed_per_year - a.fixed_per_year;
  const double saving_per_million = a.cost_per_million_tokens - b.cost_per_million_tokens;
  if (saving_per_million == 0) return std::nullopt;
  const double million_tokens_per_year = extra_fixed / saving_per_million;
  if (million_tokens_per_year <= 0) return std::nullopt;
  return BreakEven{million_tokens_per_year * 1e6 / kDaysPerYear, saving_per_million > 0};
}

std::optional<double> PaybackYearsAtVolume(double outlay, double price_per_million_tokens,
                                           const VolumeCost& option, double tokens_per_day) {
  const double surplus_per_year = (price_per_million_tokens - option.cost_per_million_tokens) *
                                      MillionTokensPerYear(tokens_per_day) -
                                  option.fixed_per_year;
  if (surplus_per_year <= 0) return std::nullopt;
  return outlay / surplus_per_year;
}

}  // namespace tare::econ
