// Bounds that hold at every moment at once: a roll-out is looked at after each answer and may stop
// at any, which an ordinary confidence interval does not survive.
//
// All rest on one supermartingale, the beta-binomial mixture of a Bernoulli likelihood ratio: after
// s successes in n trials, B(s + a, n - s + b) / B(a, b) / (p^s (1 - p)^(n - s)) with a = b = 1/2
// exceeds 1/alpha at some n with a probability of at most alpha when p is true (Ville's
// inequality).
//
//   RateBounds      the rates p it does not rule out
//   QuantileRanks   the ranks between which the q-quantile lies: at the true quantile the number of
//                   values below it is a Bernoulli count of rate q, so that one test at that point
//                   is enough and nothing has to hold for all points at once
//
// Source: Robbins (1970), "Statistical methods related to the law of the iterated logarithm";
// Howard and Ramdas (2022), "Sequential estimation of quantiles with applications to A/B testing".
// Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace tare::gateway {

struct Bounds {
  double low = 0;
  double high = 1;
};

// Of the rate behind `successes` in `trials`; wrong at any time with probability <= alpha.
Bounds RateBounds(std::uint64_t successes, std::uint64_t trials, double alpha);

// The q-quantile of `count` values is at least the `low`-th smallest and at most the `high`-th,
// counted from 1; low 0: no lower bound yet, high count + 1: no upper bound yet.
struct Ranks {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};
Ranks QuantileRanks(double q, std::uint64_t count, double alpha);

}  // namespace tare::gateway
