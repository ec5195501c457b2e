#include "advise/uncertainty.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace tare::advise {
namespace {

TEST(EstimateRate, OneRoundByHand) {
  // Mean 100, sample variance 200/3, of the mean 50/3: 4.08 %; three degrees of freedom.
  const RateEstimate estimate = EstimateRate({{90, 100, 110, 100}});
  EXPECT_DOUBLE_EQ(estimate.mean, 100);
  EXPECT_NEAR(estimate.relative_error, std::sqrt(50.0 / 3) / 100, 1e-12);
  EXPECT_NEAR(estimate.degrees_of_freedom, 3, 1e-9);
  EXPECT_EQ(estimate.rounds, 1);
}

TEST(EstimateRate, RoundsThatDisagreeWidenTheError) {
  // Within: variance 0. Between: means 90 and 110, variance 200, of the mean 100: 10 %.
  const RateEstimate estimate = EstimateRate({{90, 90}, {110, 110}});
  EXPECT_DOUBLE_EQ(estimate.mean, 100);
  EXPECT_NEAR(estimate.relative_error, 0.1, 1e-12);
  EXPECT_NEAR(estimate.degrees_of_freedom, 1, 1e-9);
}

TEST(EstimateRate, TooLittleToTell) {
  EXPECT_DOUBLE_EQ(EstimateRate({{100}}).relative_error, 1);
  EXPECT_DOUBLE_EQ(EstimateRate({}).mean, 0);
  EXPECT_DOUBLE_EQ(EstimateRate({{0, 0, 0}}).relative_error, 1);
}

// Values from scipy.stats.beta.sf(q, k + 1, n - k + 1).
TEST(ProbabilityShareAtLeast, AgainstTheBetaDistribution) {
  EXPECT_NEAR(ProbabilityShareAtLeast(64, 64, 0.9), 0.998939, 1e-5);
  EXPECT_NEAR(ProbabilityShareAtLeast(58, 64, 0.9), 0.477594, 1e-5);
  EXPECT_NEAR(ProbabilityShareAtLeast(0, 10, 0.5), 0.00048828, 1e-8);
  EXPECT_NEAR(ProbabilityShareAtLeast(100'000, 100'000, 0.99), 1, 1e-9);
}

RC_GTEST_PROP(ProbabilityShareAtLeast, MoreKeptIsMoreLikely, ()) {
  const auto total = *rc::gen::inRange<std::uint64_t>(1, 500);
  const auto within = *rc::gen::inRange<std::uint64_t>(0, total);
  RC_ASSERT(ProbabilityShareAtLeast(within + 1, total, 0.9) >=
            ProbabilityShareAtLeast(within, total, 0.9));
}

TEST(StudentHalfWidth, KnownQuantiles) {
  EXPECT_NEAR(StudentHalfWidth(0.95, 10), 2.228, 1e-3);
  EXPECT_NEAR(StudentHalfWidth(0.95, 1), 12.706, 1e-3);
}

TEST(PercentileOf, Interpolates) {
  EXPECT_DOUBLE_EQ(PercentileOf({1, 2, 3, 4, 5}, 0.5), 3);
  EXPECT_DOUBLE_EQ(PercentileOf({0, 10}, 0.9), 9);
  EXPECT_DOUBLE_EQ(PercentileOf({7}, 0.99), 7);
}

}  // namespace
}  // namespace tare::advise
