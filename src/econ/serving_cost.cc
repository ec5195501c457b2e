#include "econ/serving_cost.h"

#include <cmath>

namespace tare::econ {
namespace {

constexpr double kMillion = 1e6;
constexpr double kSecondsPerDay = 86400;

Status CheckInputs(const ServingCostInputs& inputs) {
  const auto bad = [](double value) { return !std::isfinite(value) || value < 0; };
  if (bad(inputs.machine_usd_per_hour)) {
    return FailParam("machine_usd_per_hour", "a machine price must be zero or more, got {}",
                     inputs.machine_usd_per_hour);
  }
  const ServingRates& rates = inputs.rates;
  if (bad(rates.requests_per_s) || bad(rates.input_tokens_per_s) ||
      bad(rates.output_tokens_per_s)) {
    return FailParam("rates", "rates must be zero or more");
  }
  if (rates.input_tokens_per_s + rates.output_tokens_per_s <= 0) {
    return FailParam("rates", "no tokens were served, so a token has no cost");
  }
  if (!(inputs.utilisation > 0 && inputs.utilisation <= 1)) {
    return FailParam("utilisation", "utilisation must be above 0 and at most 1, got {}",
                     inputs.utilisation);
  }
  return {};
}

double TokensPerSecond(const ServingRates& rates) {
  return rates.input_tokens_per_s + rates.output_tokens_per_s;
}

}  // namespace

Result<ServingCost> CostOfServing(const ServingCostInputs& inputs) {
  TARE_RETURN_IF_ERROR(CheckInputs(inputs));
  const double usd_per_s = inputs.machine_usd_per_hour / kSecondsPerHour;
  const double share = inputs.utilisation;
  const ServingRates& rates = inputs.rates;
  ServingCost cost;
  cost.usd_per_million_tokens = usd_per_s / (TokensPerSecond(rates) * share) * kMillion;
  cost.usd_per_million_input_tokens = usd_per_s / (rates.input_tokens_per_s * share) * kMillion;
  cost.usd_per_million_output_tokens = usd_per_s / (rates.output_tokens_per_s * share) * kMillion;
  cost.usd_per_thousand_requests = usd_per_s / (rates.requests_per_s * share) * 1000;
  cost.usd_per_month = inputs.machine_usd_per_hour * kHoursPerMonth;
  cost.requests_per_usd = rates.requests_per_s * share / usd_per_s;
  cost.requests_per_s_per_usd_month = rates.requests_per_s * share / cost.usd_per_month;
  return cost;
}

Result<TokenPrices> SplitByPriceRatio(const ServingCostInputs& inputs, double output_to_input) {
  TARE_RETURN_IF_ERROR(CheckInputs(inputs));
  if (!std::isfinite(output_to_input) || output_to_input <= 0) {
    return FailParam("output_to_input", "the price ratio must be above 0, got {}", output_to_input);
  }
  const double usd_per_s = inputs.machine_usd_per_hour / kSecondsPerHour;
  const double weighted_tokens_per_s =
      (inputs.rates.input_tokens_per_s + output_to_input * inputs.rates.output_tokens_per_s) *
      inputs.utilisation;
  const double input = usd_per_s / weighted_tokens_per_s * kMillion;
  return TokenPrices{input, input * output_to_input};
}

Result<Fleet> FleetFor(const ServingCostInputs& inputs, const Traffic& traffic) {
  TARE_RETURN_IF_ERROR(CheckInputs(inputs));
  if (!std::isfinite(traffic.tokens_per_day) || traffic.tokens_per_day <= 0) {
    return FailParam("tokens_per_day", "the traffic must be above 0 tokens a day, got {}",
                     traffic.tokens_per_day);
  }
  if (!std::isfinite(traffic.peak_to_mean) || traffic.peak_to_mean < 1) {
    return FailParam("peak_to_mean", "the peak cannot be below the mean, got {}",
                     traffic.peak_to_mean);
  }
  const double mean_per_s = traffic.tokens_per_day / kSecondsPerDay;
  const double capacity_per_s = TokensPerSecond(inputs.rates);
  const double needed = std::ceil(mean_per_s * traffic.peak_to_mean / capacity_per_s);
  if (needed > 1e6) {
    return Fail(ErrorKind::kInvalidArgument, "{:.3g} tokens a day would need {:.3g} machines",
                traffic.tokens_per_day, needed);
  }
  Fleet fleet;
  fleet.machines = static_cast<int>(needed);
  fleet.usd_per_month = needed * inputs.machine_usd_per_hour * kHoursPerMonth;
  const double tokens_per_month = mean_per_s * kSecondsPerHour * kHoursPerMonth;
  fleet.usd_per_million_tokens = fleet.usd_per_month / tokens_per_month * kMillion;
  fleet.utilisation = mean_per_s / (needed * capacity_per_s);
  return fleet;
}

std::optional<double> BreakEvenUsdPerHour(const ServingCostInputs& a, const ServingCostInputs& b) {
  if (!CheckInputs(a) || !CheckInputs(b)) return std::nullopt;
  return b.machine_usd_per_hour * (TokensPerSecond(a.rates) * a.utilisation) /
         (TokensPerSecond(b.rates) * b.utilisation);
}

}  // namespace tare::econ
