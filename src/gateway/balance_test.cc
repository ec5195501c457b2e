#include "gateway/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tare::gateway {
namespace {

using ::testing::ElementsAre;

TEST(Balance, KeepsTheWrittenOrderButPutsTheOtherTierLast) {
  const std::vector<BalanceTarget> targets = {{.other_tier = true}, {}, {}};
  EXPECT_THAT(OrderTargets(Balance::kOrdered, targets), ElementsAre(1, 2, 0));
}

TEST(Balance, DrawsInProportionToTheWeights) {
  std::minstd_rand random(7);
  std::uniform_real_distribution<double> uniform(1e-9, 1);
  int first = 0;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const std::vector<BalanceTarget> targets = {{.weight = 3, .draw = uniform(random)},
                                                {.weight = 1, .draw = uniform(random)}};
    first += OrderTargets(Balance::kWeighted, targets).front() == 0 ? 1 : 0;
  }
  // 5 standard errors of a share of 0.75 over 20,000 draws.
  EXPECT_NEAR(static_cast<double>(first) / kDraws, 0.75, 0.0153);
}

TEST(Balance, AUserKeepsATargetAndOnlyTheRemovedOnesUsersMove) {
  const std::vector<std::string> names = {"a", "b", "c"};
  const auto pick = [&](const std::string& user, std::size_t count) {
    std::vector<BalanceTarget> targets;
    for (std::size_t i = 0; i < count; ++i) targets.push_back({.draw = StickyDraw(user, names[i])});
    return OrderTargets(Balance::kWeighted, targets).front();
  };
  std::vector<int> users(3);
  for (int i = 0; i < 3000; ++i) {
    const std::string user = "user-" + std::to_string(i);
    const std::size_t with_three = pick(user, 3);
    EXPECT_EQ(pick(user, 3), with_three);
    if (with_three != 2) {
      EXPECT_EQ(pick(user, 2), with_three) << user;
    }
    ++users[with_three];
  }
  for (const int count : users) EXPECT_NEAR(count, 1000, 130);  // 5 standard errors
}

TEST(Balance, FewestTokensPerWeightFirst) {
  const std::vector<BalanceTarget> targets = {
      {.weight = 1, .outstanding = 300}, {.weight = 4, .outstanding = 800}, {.outstanding = 250}};
  EXPECT_THAT(OrderTargets(Balance::kLeastTokens, targets), ElementsAre(1, 2, 0));
}

TEST(Balance, GoesWhereThePrefixIsUnlessItIsMuchBusier) {
  std::vector<BalanceTarget> targets = {{.outstanding = 100},
                                        {.outstanding = 5000, .prefix_bytes = 2048},
                                        {.outstanding = 50, .prefix_bytes = 512}};
  EXPECT_THAT(OrderTargets(Balance::kPrefix, targets), ElementsAre(1, 2, 0));
  targets[1].outstanding = 50'000;
  EXPECT_THAT(OrderTargets(Balance::kPrefix, targets), ElementsAre(2, 0, 1));
}

}  // namespace
}  // namespace tare::gateway
