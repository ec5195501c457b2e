// Time value of money: present value under an explicit convention, internal rate of return,
// pay-back and capital recovery.
//
// Pure functions; amounts are in whatever currency the caller uses throughout, rates are fractions
// a year (0.08 is 8 %). A series `flows` holds one amount a period, flows[0] being period 1.
// Sources: docs/ECONOMICS.md, "Discounting", derives each formula with a worked example.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace tare::econ {

// When in its period a cash flow is counted.
enum class Timing { kStart, kMiddle, kEnd };
std::string_view ToString(Timing timing);

struct Discounting {
  double rate_per_year = 0;
  int periods_per_year = 1;
  Timing timing = Timing::kEnd;
};

// What one unit of money in period `period` (counted from 1) is worth today:
// (1 + rate)^-(t), with t the flow's time in years. The annual rate is effective, so a quarter
// discounts by (1 + rate)^(1/4), not by 1 + rate/4.
double DiscountFactor(const Discounting& discounting, int period);

double PresentValue(std::span<const double> flows, const Discounting& discounting);

// PresentValue less an outlay paid today.
double NetPresentValue(double outlay, std::span<const double> flows,
                       const Discounting& discounting);

struct RateOfReturn {
  double rate_per_year = 0;
  bool unique = true;  // false when the flows change sign more than once: other roots may exist
};
// The rate at which the net present value is zero; nothing when no rate between -99.99 % and
// 1,000,000 % makes it zero.
std::optional<RateOfReturn> InternalRateOfReturn(double outlay, std::span<const double> flows,
                                                 const Discounting& convention);

// Years until the (discounted) flows have returned the outlay, linear within a period; nothing
// when they never do. A convention with rate 0 gives the plain pay-back.
std::optional<double> PaybackYears(double outlay, std::span<const double> flows,
                                   const Discounting& convention);

// The level payment a year, at year ends, that repays 1 over `years` at `rate_per_year`:
// r / (1 - (1 + r)^-n), and 1/n at rate 0.
double CapitalRecoveryFactor(double rate_per_year, double years);

}  // namespace tare::econ
