// Options compared by volume (SPEC row EC1): a fixed cost a year plus a cost per million tokens.
// Amounts are in the caller's currency; volumes are tokens a day; a year has 365 days.
#pragma once

#include <optional>

namespace tare::econ {

inline constexpr double kDaysPerYear = 365;

struct VolumeCost {
  double fixed_per_year = 0;           // paid at any volume
  double cost_per_million_tokens = 0;  // on top of the fixed part
};

double CostPerYear(const VolumeCost& option, double tokens_per_day);

// Fixed part included: what a million tokens really cost at this volume.
double AllInCostPerMillionTokens(const VolumeCost& option, double tokens_per_day);

struct BreakEven {
  double tokens_per_day = 0;
  bool b_wins_above = false;  // else b wins below
};
// The volume at which a and b cost the same; nothing when one is never dearer than the other.
std::optional<BreakEven> BreakEvenVolume(const VolumeCost& a, const VolumeCost& b);

// Years for `outlay` to return at a margin (price less variable cost) per million tokens, less the
// fixed cost a year; nothing when the yearly surplus is not positive.
std::optional<double> PaybackYearsAtVolume(double outlay, double price_per_million_tokens,
                                           const VolumeCost& option, double tokens_per_day);

// Requests a second for each unit of money spent a month (EC10).
inline double RequestsPerSecondPerMoney(double requests_per_second, double cost_per_month) {
  return requests_per_second / cost_per_month;
}

}  // namespace tare::econ
