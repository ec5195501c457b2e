#include "econ/discounting.h"

#include <cmath>

#include "base/check.h"

namespace tare::econ {
namespace {

double TimeInPeriods(Timing timing, int period) {
  switch (timing) {
    case Timing::kStart:
      return period - 1;
    case Timing::kMiddle:
      return period - 0.5;
    case Timing::kEnd:
      break;
  }
  return period;
}

int SignChanges(double outlay, std::span<const double> flows) {
  int changes = 0;
  double last = -outlay;
  for (double flow : flows) {
    if (flow == 0) continue;
    if (last != 0 && (flow > 0) != (last > 0)) ++changes;
    last = flow;
  }
  return changes;
}

}  // namespace

std::string_view ToString(Timing timing) {
  switch (timing) {
    case Timing::kStart:
      return "start";
    case Timing::kMiddle:
      return "middle";
    case Timing::kEnd:
      break;
  }
  return "end";
}

double DiscountFactor(const Discounting& discounting, int period) {
  const double years =
      TimeInPeriods(discounting.timing, period) / static_cast<double>(discounting.periods_per_year);
  return std::pow(1 + discounting.rate_per_year, -years);
}

double PresentValue(std::span<const double> flows, const Discounting& discounting) {
  TARE_CHECK(discounting.periods_per_year > 0);
  // One factor per period, by repeated multiplication: the Monte Carlo runs through here.
  const double step = std::pow(1 + discounting.rate_per_year, -1.0 / discounting.periods_per_year);
  double factor = discounting.timing == Timing::kStart    ? 1.0
                  : discounting.timing == Timing::kMiddle ? std::sqrt(step)
                                                          : step;
  double sum = 0;
  for (double flow : flows) {
    sum += flow * factor;
    factor *= step;
  }
  return sum;
}

double NetPresentValue(double outlay, std::span<const double> flows,
                       const Discounting& discounting) {
  return PresentValue(flows, discounting) - outlay;
}

std::optional<RateOfReturn> InternalRateOfReturn(double outlay, std::span<const double> flows,
                                                 const Discounting& convention) {
  auto value_at = [&](double rate) {
    Discounting at = convention;
    at.rate_per_year = rate;
    return NetPresentValue(outlay, flows, at);
  };
  // Scan outwards from zero on a geometric grid of 1 + rate, so that the root nearest to zero is
  // found first, then halve the bracket.
  constexpr int kSteps = 400;
  const double low = std::log(1e-4);
  const double high = std::log(1e4 + 1);
  auto bracket = [&](double from, double to) -> std::optional<double> {
    double a = from;
    double value_a = value_at(std::expm1(a));
    for (int i = 1; i <= kSteps; ++i) {
      const double b = from + (to - from) * i / kSteps;
      const double value_b = value_at(std::expm1(b));
      if (value_a == 0) return std::expm1(a);
      if (std::isfinite(value_a) && std::isfinite(value_b) && (value_a > 0) != (value_b > 0)) {
        double inner = a;
        double outer = b;
        for (int halving = 0; halving < 100; ++halving) {
          const double middle = 0.5 * (inner + outer);
          ((value_at(std::expm1(middle)) > 0) == (value_a > 0) ? inner : outer) = middle;
        }
        return std::expm1(0.5 * (inner + outer));
      }
      a = b;
      value_a = value_b;
    }
    return std::nullopt;
  };
  std::optional<double> up = bracket(0, high);
  std::optional<double> down = bracket(0, low);
  if (!up && !down) return std::nullopt;
  const double root = up && (!down || std::abs(*up) <= std::abs(*down)) ? *up : *down;
  return RateOfReturn{root, SignChanges(outlay, flows) <= 1};
}

std::optional<double> PaybackYears(double outlay, std::span<const double> flows,
                                   const Discounting& convention) {
  if (outlay <= 0) return 0.0;
  double returned = 0;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const double flow = flows[i] * DiscountFactor(convention, static_cast<int>(i) + 1);
    if (returned + flow >= outlay) {
      const double share = (outlay - returned) / flow;
      return (static_cast<double>(i) + share) / convention.periods_per_year;
    }
    returned += flow;
  }
  return std::nullopt;
}

double CapitalRecoveryFactor(double rate_per_year, double years) {
  if (rate_per_year == 0) return 1 / years;
  return rate_per_year / -std::expm1(-years * std::log1p(rate_per_year));
}

}  // namespace tare::econ
