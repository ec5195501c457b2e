#include "econ/serving_cost.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

namespace tare::econ {
namespace {

// $3.60 an hour is $0.001 a second; 2 requests/s of 400 + 100 tokens are 1,000 tokens/s.
const ServingCostInputs kByHand = {3.6, {2, 800, 200}, 1};

TEST(CostOfServing, ByHand) {
  const ServingCost cost = *CostOfServing(kByHand);
  EXPECT_DOUBLE_EQ(cost.usd_per_million_tokens, 1.0);         // 0.001 / 1000 × 1e6
  EXPECT_DOUBLE_EQ(cost.usd_per_million_input_tokens, 1.25);  // 0.001 / 800 × 1e6
  EXPECT_DOUBLE_EQ(cost.usd_per_million_output_tokens, 5.0);  // 0.001 / 200 × 1e6
  EXPECT_DOUBLE_EQ(cost.usd_per_thousand_requests, 0.5);      // 0.001 / 2 × 1000
  EXPECT_DOUBLE_EQ(cost.requests_per_usd, 2000);              // 2 / 0.001
  EXPECT_DOUBLE_EQ(cost.usd_per_month, 2628);                 // 3.6 × 730
}

TEST(CostOfServing, IdleHoursArePaid) {
  ServingCostInputs quarter = kByHand;
  quarter.utilisation = 0.25;
  const ServingCost cost = *CostOfServing(quarter);
  EXPECT_DOUBLE_EQ(cost.usd_per_million_tokens, 4.0);
  EXPECT_DOUBLE_EQ(cost.requests_per_usd, 500);
  EXPECT_DOUBLE_EQ(cost.usd_per_month, 2628);
}

// The published pair of SPEC row EN3: a node of $1,240 a month at 982 and at 1,847 requests/s.
TEST(CostOfServing, RequestsPerSecondPerDollarAsPublished) {
  ServingCostInputs inputs = {1240.0 / kHoursPerMonth, {982, 0, 982}, 1};
  EXPECT_NEAR(CostOfServing(inputs)->requests_per_s_per_usd_month, 0.79, 0.005);
  inputs.rates.requests_per_s = 1847;
  EXPECT_NEAR(CostOfServing(inputs)->requests_per_s_per_usd_month, 1.49, 0.005);
}

TEST(CostOfServing, RefusesNonsense) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(CostOfServing({-1, {1, 1, 1}, 1}));
  EXPECT_FALSE(CostOfServing({inf, {1, 1, 1}, 1}));
  EXPECT_FALSE(CostOfServing({1, {1, 0, 0}, 1}));
  EXPECT_FALSE(CostOfServing({1, {1, std::nan(""), 1}, 1}));
  EXPECT_FALSE(CostOfServing({1, {1, 1, 1}, 0}));
  EXPECT_FALSE(CostOfServing({1, {1, 1, 1}, 1.1}));
}

TEST(SplitByPriceRatio, PaysTheWholeBill) {
  // 800 + 4 × 200 = 1,600 weighted tokens/s for $0.001: $0.625 and $2.50 a million.
  const TokenPrices prices = *SplitByPriceRatio(kByHand, 4);
  EXPECT_DOUBLE_EQ(prices.usd_per_million_input_tokens, 0.625);
  EXPECT_DOUBLE_EQ(prices.usd_per_million_output_tokens, 2.5);
  const double usd_per_s =
      (800 * prices.usd_per_million_input_tokens + 200 * prices.usd_per_million_output_tokens) /
      1e6;
  EXPECT_DOUBLE_EQ(usd_per_s, 0.001);
  EXPECT_FALSE(SplitByPriceRatio(kByHand, 0));
}

TEST(FleetFor, WholeMachinesForThePeak) {
  // 172.8 million tokens a day are 2,000 a second: 2 machines for the mean, 5 for 2.5 × the mean.
  const Fleet mean = *FleetFor(kByHand, {172.8e6, 1});
  EXPECT_EQ(mean.machines, 2);
  EXPECT_DOUBLE_EQ(mean.usd_per_month, 5256);
  EXPECT_NEAR(mean.usd_per_million_tokens, 1.0, 1e-12);
  EXPECT_DOUBLE_EQ(mean.utilisation, 1.0);
  const Fleet peak = *FleetFor(kByHand, {172.8e6, 2.5});
  EXPECT_EQ(peak.machines, 5);
  EXPECT_DOUBLE_EQ(peak.utilisation, 0.4);
  EXPECT_NEAR(peak.usd_per_million_tokens, 2.5, 1e-12);
  EXPECT_FALSE(FleetFor(kByHand, {0, 1}));
  EXPECT_FALSE(FleetFor(kByHand, {1e6, 0.5}));
  EXPECT_FALSE(FleetFor(kByHand, {1e30, 1}));
}

TEST(BreakEvenUsdPerHour, FollowsTheRates) {
  const ServingCostInputs slower = {3.6, {1, 400, 100}, 1};
  EXPECT_DOUBLE_EQ(*BreakEvenUsdPerHour(kByHand, slower), 7.2);
  EXPECT_DOUBLE_EQ(*BreakEvenUsdPerHour(slower, kByHand), 1.8);
}

RC_GTEST_PROP(CostOfServing, FasterIsCheaperAndDearerMachinesCostMore, ()) {
  const auto positive = [] { return *rc::gen::inRange(1, 1'000'000) / 100.0; };
  ServingCostInputs inputs = {positive(), {positive(), positive(), positive()}, 1};
  const double cost = CostOfServing(inputs)->usd_per_million_tokens;
  ServingCostInputs faster = inputs;
  faster.rates.output_tokens_per_s *= 2;
  RC_ASSERT(CostOfServing(faster)->usd_per_million_tokens < cost);
  ServingCostInputs dearer = inputs;
  dearer.machine_usd_per_hour *= 2;
  RC_ASSERT(CostOfServing(dearer)->usd_per_million_tokens > cost);
}

RC_GTEST_PROP(FleetFor, NeverUndersized, ()) {
  const Traffic traffic = {*rc::gen::inRange(1, 1'000'000'000) * 1.0,
                           1 + *rc::gen::inRange(0, 50) / 10.0};
  const Fleet fleet = *FleetFor(kByHand, traffic);
  RC_ASSERT(fleet.machines >= 1);
  RC_ASSERT(fleet.machines * 1000.0 * 86400 >=
            traffic.tokens_per_day * traffic.peak_to_mean * (1 - 1e-9));
  RC_ASSERT(fleet.utilisation <= 1 + 1e-9);
}

}  // namespace
}  // namespace tare::econ
