#include "engine/speculation.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <vector>

namespace tare::engine {
namespace {

using std::chrono::microseconds;

// Steps whose time is `base` and `per_row` for every row more than one.
StepCosts Costs(int base_us, int per_row_us, std::uint32_t rows = 80) {
  StepCosts costs;
  for (std::uint32_t r = 1; r <= rows; ++r) {
    costs.Note(r, microseconds(base_us + per_row_us * static_cast<int>(r - 1)));
  }
  return costs;
}

Acceptance After(std::uint32_t length, int right, int wrong) {
  Acceptance acceptance = Acceptance::OfOne();
  for (int i = 0; i < std::max(right, wrong); ++i) {
    if (i < right) acceptance.Note(length, true);
    if (i < wrong) acceptance.Note(length, false);
  }
  return acceptance;
}

std::uint32_t Chosen(const Acceptance& acceptance, std::uint32_t length, const StepCosts& costs,
                     std::uint32_t rows = 1) {
  DraftCandidate candidate{&acceptance, length, 15};
  ChooseDrafts({rows, rows, 500}, costs, std::span(&candidate, 1));
  return candidate.chosen;
}

TEST(AcceptanceTest, LearnsEachKindOfMatchByItself) {
  Acceptance acceptance = Acceptance::OfOne();
  EXPECT_LT(acceptance.Chance(2), acceptance.Chance(4));
  EXPECT_LT(acceptance.Chance(4), acceptance.Chance(20));
  const double untouched = acceptance.Chance(2);
  for (int i = 0; i < 100; ++i) acceptance.Note(20, false);
  EXPECT_LT(acceptance.Chance(20), 0.02);
  EXPECT_EQ(acceptance.Chance(2), untouched);
  for (int i = 0; i < 100; ++i) acceptance.Note(20, true);
  EXPECT_GT(acceptance.Chance(20), 0.98);
}

TEST(AcceptanceTest, NewSequencesBeginLikeTheOthers) {
  Acceptance many = Acceptance::OfMany();
  for (int i = 0; i < 500; ++i) many.Note(3, true);
  Acceptance one = many.BeginningLikeThis();
  EXPECT_GT(one.Chance(3), 0.9);
  EXPECT_EQ(one.Chance(20), Acceptance::OfOne().Chance(20));
  for (int i = 0; i < 20; ++i) {  // and change their minds faster
    one.Note(3, false);
    many.Note(3, false);
  }
  EXPECT_LT(one.Chance(3), 0.3);
  EXPECT_GT(many.Chance(3), 0.85);
}

TEST(StepCostsTest, InterpolatesExtrapolatesAndForgets) {
  StepCosts costs;
  EXPECT_FALSE(costs.Knows(1));
  costs.Note(1, microseconds(1000));
  EXPECT_TRUE(costs.Knows(1));
  EXPECT_FALSE(costs.Knows(2));
  EXPECT_GT(costs.Seconds(5), costs.Seconds(1));
  EXPECT_LT(costs.Seconds(5), 1.5 * costs.Seconds(1));
  costs.Note(9, microseconds(3000));
  EXPECT_NEAR(costs.Seconds(5), 2e-3, 1e-9);
  costs.Note(9, microseconds(1'000'000));  // the system was busy
  EXPECT_LT(costs.Seconds(9), 4e-3);
  for (int i = 0; i < 1000; ++i) costs.Note(9, microseconds(500));
  EXPECT_FALSE(costs.Knows(1));
  EXPECT_NEAR(costs.Seconds(9), 0.5e-3, 1e-6);
}

TEST(ChooseDraftsTest, AsManyAsPay) {
  const Acceptance sure = After(20, 200, 0), never = After(20, 0, 200);
  const StepCosts cheap = Costs(1000, 10), dear = Costs(1000, 1000);
  EXPECT_EQ(Chosen(sure, 20, cheap), 15u);
  EXPECT_EQ(Chosen(never, 20, cheap), 0u);
  EXPECT_EQ(Chosen(sure, 20, dear), 0u);  // a row costs as much as a step
  // Half right, half wrong: the first ones pay, the later ones are hardly ever reached.
  const std::uint32_t some = Chosen(After(20, 100, 100), 20, Costs(1000, 60));
  EXPECT_GT(some, 0u);
  EXPECT_LT(some, 6u);
  EXPECT_EQ(Chosen(sure, 20, StepCosts()), 0u);  // nothing measured
}

TEST(ChooseDraftsTest, OthersDoNotWaitMuchLonger) {
  const Acceptance sure = After(20, 200, 0);
  const StepCosts costs = Costs(1000, 40);
  std::vector<DraftCandidate> one(1, {&sure, 20, 15});
  ChooseDrafts({8, 8, 500}, costs, one);
  EXPECT_GT(one[0].chosen, 0u);
  EXPECT_LE(costs.Seconds(8 + one[0].chosen), 1.25 * costs.Seconds(8));
  std::vector<DraftCandidate> all(8, {&sure, 20, 15});
  ChooseDrafts({8, 8, 500}, costs, all);
  std::uint32_t sum = 0;
  for (const DraftCandidate& c : all) sum += c.chosen;
  EXPECT_GT(sum, 40u);  // shared out evenly
  EXPECT_LE(all[0].chosen, all[7].chosen + 1);
}

RC_GTEST_PROP(ChooseDraftsPropertyTest, StaysWithinBudgetAndWhatIsOfUse, ()) {
  const bool adaptive = *rc::gen::arbitrary<bool>();
  std::vector<Acceptance> acceptances;
  const auto count = *rc::gen::inRange<std::size_t>(0, 12);
  for (std::size_t i = 0; i < count; ++i) {
    acceptances.push_back(
        After(*rc::gen::inRange(2u, 32u), *rc::gen::inRange(0, 30), *rc::gen::inRange(0, 30)));
  }
  std::vector<DraftCandidate> candidates;
  for (const Acceptance& acceptance : acceptances) {
    candidates.push_back({&acceptance, *rc::gen::inRange(2u, 32u), *rc::gen::inRange(0u, 15u)});
  }
  StepSoFar step;
  step.decoding = static_cast<std::uint32_t>(count) + *rc::gen::inRange(0u, 5u);
  step.rows = step.decoding + *rc::gen::inRange(0u, 40u);
  step.budget = *rc::gen::inRange(0u, 90u);
  const StepCosts costs = Costs(*rc::gen::inRange(1, 5000), *rc::gen::inRange(0, 300));
  if (adaptive) {
    ChooseDrafts(step, costs, candidates);
  } else {
    ChooseAllDrafts(step, candidates);
  }
  std::uint32_t sum = 0, useful = 0;
  for (const DraftCandidate& c : candidates) {
    RC_ASSERT(c.chosen <= c.most);
    sum += c.chosen;
    useful += c.most;
  }
  RC_ASSERT(sum <= std::min(step.budget, kMostDraftRows));
  if (!adaptive) RC_ASSERT(sum == std::min({step.budget, kMostDraftRows, useful}));
}

}  // namespace
}  // namespace tare::engine
