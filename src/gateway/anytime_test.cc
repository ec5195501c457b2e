#include "gateway/anytime.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace tare::gateway {
namespace {

constexpr double kAlpha = 0.05;

TEST(Anytime, BoundsHoldTheRateAndShrink) {
  EXPECT_EQ(RateBounds(0, 0, kAlpha).high, 1);
  const Bounds few = RateBounds(1, 100, kAlpha);
  const Bounds many = RateBounds(100, 10'000, kAlpha);
  EXPECT_LT(few.low, 0.01);
  EXPECT_GT(few.high, 0.01);
  EXPECT_LT(many.high - many.low, (few.high - few.low) / 5);
  EXPECT_EQ(RateBounds(0, 1000, kAlpha).low, 0);
  EXPECT_LT(RateBounds(0, 1000, kAlpha).high, 0.01);
  EXPECT_EQ(RateBounds(1000, 1000, kAlpha).high, 1);
}

TEST(Anytime, RanksEncloseTheQuantile) {
  const Ranks median = QuantileRanks(0.5, 1000, kAlpha);
  EXPECT_GT(median.low, 400u);
  EXPECT_LT(median.low, 500u);
  EXPECT_GT(median.high, 500u);
  EXPECT_LT(median.high, 600u);
  const Ranks tail = QuantileRanks(0.99, 50, kAlpha);
  EXPECT_EQ(tail.high, 51u) << "50 values cannot bound a P99 from above";
  EXPECT_LE(QuantileRanks(0.99, 5000, kAlpha).high, 5000u);
}

// Looked at after every single value, the bounds miss the truth in at most alpha of all runs.
TEST(Anytime, NeverBreaksItsPromiseWhateverMomentIsChosen) {
  constexpr int kRuns = 1000, kTrials = 1000;
  std::mt19937_64 random(11);
  std::bernoulli_distribution error(0.02);
  std::exponential_distribution<double> latency(1.0);
  const double p90 = std::log(10.0);
  int rate_missed = 0, quantile_missed = 0;
  // Ranks depend on the count alone: computed once for all runs.
  std::vector<Ranks> ranks(kTrials + 1);
  for (std::uint64_t n = 1; n <= kTrials; ++n) ranks[n] = QuantileRanks(0.9, n, kAlpha);
  for (int run = 0; run < kRuns; ++run) {
    std::uint64_t errors = 0, below = 0;
    bool rate = false, quantile = false;
    for (std::uint64_t n = 1; n <= kTrials; ++n) {
      errors += error(random) ? 1 : 0;
      below += latency(random) <= p90 ? 1 : 0;
      // The low-th smallest is above the quantile, or the high-th below it.
      quantile = quantile || below < ranks[n].low || below >= ranks[n].high;
      if (n % 25 == 0) {
        const Bounds bounds = RateBounds(errors, n, kAlpha);
        rate = rate || bounds.low > 0.02 || bounds.high < 0.02;
      }
    }
    rate_missed += rate ? 1 : 0;
    quantile_missed += quantile ? 1 : 0;
  }
  EXPECT_LE(rate_missed, kRuns * kAlpha);
  EXPECT_LE(quantile_missed, kRuns * kAlpha);
}

}  // namespace
}  // namespace tare::gateway
