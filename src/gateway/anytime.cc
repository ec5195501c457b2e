#include "gateway/anytime.h"

#include <cmath>

namespace tare::gateway {

namespace {

constexpr double kPrior = 0.5;  // Jeffreys: narrow for rates near 0, where error rates live
constexpr int kHalvings = 60;

double LogBeta(double a, double b) { return std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b); }

// p^s as a logarithm, with 0^0 = 1.
double LogPower(double p, double s) { return s == 0 ? 0 : s * std::log(p); }

// The martingale's logarithm for the rate p.
double LogEvidence(double s, double n, double p) {
  return LogBeta(s + kPrior, n - s + kPrior) - LogBeta(kPrior, kPrior) - LogPower(p, s) -
         LogPower(1 - p, n - s);
}

}  // namespace

Bounds RateBounds(std::uint64_t successes, std::uint64_t trials, double alpha) {
  if (trials == 0) return {};
  const auto s = static_cast<double>(successes);
  const auto n = static_cast<double>(trials);
  const double limit = -std::log(alpha);
  const double seen = s / n;  // where the evidence against p is least
  const auto edge = [&](double inside, double outside) {
    if (LogEvidence(s, n, outside) < limit) return outside;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (inside + outside) / 2;
      (LogEvidence(s, n, middle) < limit ? inside : outside) = middle;
    }
    return outside;
  };
  return {edge(seen, 0), edge(seen, 1)};
}

Ranks QuantileRanks(double q, std::uint64_t count, double alpha) {
  const auto n = static_cast<double>(count);
  const double limit = -std::log(alpha);
  const auto ruled_out = [&](std::uint64_t below) {
    return LogEvidence(static_cast<double>(below), n, q) >= limit;
  };
  const auto middle = static_cast<std::uint64_t>(std::llround(n * q));
  // The numbers of values below the quantile that are not ruled out are an interval around n * q.
  std::uint64_t low = 0;
  if (ruled_out(0)) {
    std::uint64_t out = 0, in = middle;
    while (in - out > 1) {
      const std::uint64_t next = (in + out) / 2;
      (ruled_out(next) ? out : in) = next;
    }
    low = in;
  }
  std::uint64_t high = count;
  if (ruled_out(count)) {
    std::uint64_t in = middle, out = count;
    while (out - in > 1) {
      const std::uint64_t next = (in + out) / 2;
      (ruled_out(next) ? out : in) = next;
    }
    high = in;
  }
  return {low, high + 1};
}

}  // namespace tare::gateway
