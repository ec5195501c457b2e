// What serving costs on machines rented by the hour (SPEC rows EC1 in first form, and EC10): an
// hourly price and the rates measured on one machine give the cost of tokens and of requests.
//
// Pure functions over value structs; rates are those of one machine, money is US dollars.
// docs/ECONOMICS.md, "Serving cost", works every formula by hand.
#pragma once

#include <optional>

#include "base/result.h"

namespace tare::econ {

inline constexpr double kSecondsPerHour = 3600;
inline constexpr double kHoursPerMonth = 730;  // 8,760 hours a year over 12 months

struct ServingRates {
  double requests_per_s = 0;
  double input_tokens_per_s = 0;
  double output_tokens_per_s = 0;
};

struct ServingCostInputs {
  double machine_usd_per_hour = 0;
  ServingRates rates;  // while the machine is loaded
  // Mean rate over all paid hours ÷ the rates above: 1 charges every hour as fully loaded, which
  // real traffic with nights and peaks never is. In (0, 1].
  double utilisation = 1;
};

// The whole bill divided by one count at a time: figures for comparing options. They do not add up
// to the bill (SplitByPriceRatio gives a pair that does).
struct ServingCost {
  double usd_per_million_tokens = 0;         // input and output together
  double usd_per_million_input_tokens = 0;   // infinite when there is no input
  double usd_per_million_output_tokens = 0;  // infinite when there is no output
  double usd_per_thousand_requests = 0;
  double requests_per_usd = 0;
  double requests_per_s_per_usd_month = 0;  // EC10: throughput ÷ monthly machine price
  double usd_per_month = 0;                 // of one machine
};

// Fails when a rate or price is negative or not finite, when no token flows, or when the
// utilisation is outside (0, 1].
Result<ServingCost> CostOfServing(const ServingCostInputs& inputs);

struct TokenPrices {
  double usd_per_million_input_tokens = 0;
  double usd_per_million_output_tokens = 0;
};
// The pair of prices that pays the whole bill when an output token costs `output_to_input` times an
// input token, as price lists of hosted models do.
Result<TokenPrices> SplitByPriceRatio(const ServingCostInputs& inputs, double output_to_input);

// Machines and money for a given traffic: mean tokens a day, and the peak rate ÷ the mean rate.
struct Traffic {
  double tokens_per_day = 0;  // input and output together
  double peak_to_mean = 1;    // at least 1
};
struct Fleet {
  int machines = 0;          // enough for the peak at the measured rate
  double usd_per_month = 0;  // of all of them
  double usd_per_million_tokens = 0;
  double utilisation = 0;  // mean load ÷ capacity
};
Result<Fleet> FleetFor(const ServingCostInputs& inputs, const Traffic& traffic);

// The machine price at which `a` costs the same per million tokens as `b` does now.
std::optional<double> BreakEvenUsdPerHour(const ServingCostInputs& a, const ServingCostInputs& b);

}  // namespace tare::econ
