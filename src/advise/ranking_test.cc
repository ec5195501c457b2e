#include "advise/ranking.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

namespace tare::advise {
namespace {

Contender Make(std::string name, double tokens_per_s, double error = 0.01, bool feasible = true) {
  Contender contender;
  contender.name = std::move(name);
  contender.feasible = feasible;
  contender.usd_per_hour = 3.6;
  contender.rates = {tokens_per_s / 100, tokens_per_s * 0.8, tokens_per_s * 0.2};
  contender.rate_relative_error = error;
  contender.rate_degrees_of_freedom = 20;
  return contender;
}

TEST(Rank, PicksTheClearlyCheaper) {
  const Ranking ranking = Rank({Make("slow", 500), Make("fast", 1000)}, {});
  EXPECT_EQ(ranking.verdict, Verdict::kPick);
  EXPECT_EQ(ranking.pick, 1u);
  EXPECT_EQ(ranking.second, 0u);
  EXPECT_DOUBLE_EQ(ranking.standings[1].usd_per_million_tokens, 1.0);
  EXPECT_DOUBLE_EQ(ranking.standings[0].usd_per_million_tokens, 2.0);
  EXPECT_DOUBLE_EQ(ranking.difference, 0.5);
  EXPECT_LT(ranking.difference_low, 0.5);
  EXPECT_GT(ranking.difference_high, 0.5);
  EXPECT_GT(ranking.standings[1].p_best, 0.999);
  EXPECT_LT(ranking.standings[1].low, 1.0);
  EXPECT_GT(ranking.standings[1].high, 1.0);
}

TEST(Rank, AbstainsWithinTheNoiseAndSaysHowMuchMoreWouldDecide) {
  const Ranking ranking = Rank({Make("a", 1000, 0.10), Make("b", 1050, 0.10)}, {});
  EXPECT_EQ(ranking.verdict, Verdict::kTooClose);
  EXPECT_FALSE(ranking.pick);
  EXPECT_EQ(ranking.first, 1u);
  // Half width of the log ratio: 2.086 × 0.1 × √2 = 0.295; ln 1.05 = 0.0488; (0.295/0.0488)²
  // = 36.5.
  EXPECT_NEAR(ranking.measurement_factor, 36.6, 0.5);
}

TEST(Rank, AnIntervalOverOrdersOfMagnitudeIsNotOne) {
  Contender wild = Make("wild", 1000, 0.65);
  wild.rate_degrees_of_freedom = 1;
  const Ranking ranking = Rank({wild, Make("calm", 900)}, {});
  EXPECT_FALSE(ranking.standings[0].interval_known());
  EXPECT_TRUE(ranking.standings[1].interval_known());
}

TEST(Rank, EqualCostsAreNotADifference) {
  EXPECT_EQ(Rank({Make("a", 1000, 1e-6), Make("b", 1010, 1e-6)}, {}).verdict, Verdict::kEqual);
}

TEST(Rank, NobodyKeepsTheLevels) {
  const Ranking ranking = Rank({Make("a", 1000, 0.01, false)}, {});
  EXPECT_EQ(ranking.verdict, Verdict::kNoneFeasible);
  EXPECT_FALSE(ranking.first);
  EXPECT_TRUE(std::isnan(ranking.standings[0].usd_per_million_tokens));
  EXPECT_EQ(Rank({}, {}).verdict, Verdict::kNoneFeasible);
}

TEST(Rank, ALevelKeptByLuckIsNotEnough) {
  Contender lucky = Make("lucky", 2000);
  lucky.slo_probability = 0.6;
  const Ranking ranking = Rank({lucky, Make("safe", 1000)}, {});
  EXPECT_EQ(ranking.verdict, Verdict::kLevelsUnsure);
  EXPECT_NEAR(ranking.standings[0].p_best, 0.6, 0.03);
  EXPECT_NEAR(ranking.standings[1].p_best, 0.4, 0.03);
}

TEST(Rank, SmallTrafficNeedsOneMachineOfEither) {
  RankingOptions options;
  options.traffic = econ::Traffic{1e6, 2};  // 12 tokens/s
  const Ranking ranking = Rank({Make("a", 500), Make("b", 1000)}, options);
  EXPECT_EQ(ranking.verdict, Verdict::kEqual);
  EXPECT_NEAR(ranking.standings[0].p_best, 0.5, 1e-9);
}

TEST(Rank, ABusyMachineDecidesNothing) {
  Contender slow = Make("slow", 500);
  slow.others_share = 0.4;  // on a quiet machine up to 833 tokens/s, still dearer
  EXPECT_EQ(Rank({slow, Make("fast", 1000)}, {}).verdict, Verdict::kPick);
  slow.others_share = 0.6;  // up to 1,250
  EXPECT_EQ(Rank({slow, Make("fast", 1000)}, {}).verdict, Verdict::kDisturbed);
}

std::vector<Contender> AnyContenders() {
  const auto count = *rc::gen::inRange(1, 6);
  std::vector<Contender> contenders;
  for (int i = 0; i < count; ++i) {
    contenders.push_back(Make("c" + std::to_string(i), *rc::gen::inRange(100, 5000),
                              *rc::gen::inRange(1, 300) / 1000.0, *rc::gen::arbitrary<bool>()));
    contenders.back().slo_probability = *rc::gen::inRange(0, 101) / 100.0;
    contenders.back().usd_per_hour = *rc::gen::inRange(1, 100) / 10.0;
  }
  return contenders;
}

std::string PickOf(const std::vector<Contender>& contenders, const Ranking& ranking) {
  return ranking.pick ? contenders[*ranking.pick].name : "";
}

RC_GTEST_PROP(Rank, AnInfeasibleCandidateChangesNothing, ()) {
  std::vector<Contender> contenders = AnyContenders();
  const Ranking before = Rank(contenders, {});
  const std::string pick = PickOf(contenders, before);
  const auto at = *rc::gen::inRange<std::size_t>(0, contenders.size() + 1);
  contenders.insert(contenders.begin() + static_cast<std::ptrdiff_t>(at),
                    Make("extra", *rc::gen::inRange(1, 100'000), 0.01, false));
  const Ranking after = Rank(contenders, {});
  RC_ASSERT(PickOf(contenders, after) == pick);
  RC_ASSERT(after.verdict == before.verdict);
}

RC_GTEST_PROP(Rank, TheOrderOfThePlanDecidesNothing, ()) {
  std::vector<Contender> contenders = AnyContenders();
  const Ranking before = Rank(contenders, {});
  const std::string pick = PickOf(contenders, before);
  std::reverse(contenders.begin(), contenders.end());
  RC_ASSERT(PickOf(contenders, Rank(contenders, {})) == pick);
}

RC_GTEST_PROP(Rank, ADominatedOrInfeasibleCandidateIsNeverPicked, ()) {
  const std::vector<Contender> contenders = AnyContenders();
  const Ranking ranking = Rank(contenders, {});
  if (!ranking.pick) return;
  RC_ASSERT(contenders[*ranking.pick].feasible);
  RC_ASSERT(ranking.standings[*ranking.pick].p_best >= 0.95);
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    if (!contenders[i].feasible) continue;
    RC_ASSERT(ranking.standings[i].usd_per_million_tokens >=
              ranking.standings[*ranking.pick].usd_per_million_tokens);
  }
}

RC_GTEST_PROP(Rank, DearerMoneyDoesNotChangeThePick, ()) {
  std::vector<Contender> contenders = AnyContenders();
  const Ranking before = Rank(contenders, {});
  for (Contender& contender : contenders) contender.usd_per_hour *= 8;
  const Ranking after = Rank(contenders, {});
  RC_ASSERT(PickOf(contenders, after) == PickOf(contenders, before));
}

RC_GTEST_PROP(Rank, ProbabilitiesAreAShareOfTheFeasible, ()) {
  const std::vector<Contender> contenders = AnyContenders();
  double sum = 0;
  for (const Standing& standing : Rank(contenders, {}).standings) {
    RC_ASSERT(standing.p_best >= 0 && standing.p_best <= 1 + 1e-9);
    sum += standing.p_best;
  }
  RC_ASSERT(sum <= 1 + 1e-9);
}

}  // namespace
}  // namespace tare::advise
