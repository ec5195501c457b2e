#include "engine/upkeep_pace.h"

#include <gtest/gtest.h>

namespace tare::engine {
namespace {

using std::chrono::microseconds;

StepPlan PlanOf(std::size_t copies, std::size_t discards) {
  StepPlan plan;
  plan.copies.resize(copies);
  plan.discarded.resize(discards);
  return plan;
}

StepResult Took(Nanos copying, Nanos returning) {
  StepResult result;
  result.copying = copying;
  result.returning = returning;
  return result;
}

TEST(UpkeepPaceTest, WhatWasMeasuredAtTheStart) {
  const UpkeepLimits limits = UpkeepPace(microseconds(40), microseconds(8)).Limits();
  EXPECT_EQ(limits.moves, 10u);
  EXPECT_EQ(limits.returns, 50u);
  EXPECT_GT(UpkeepPace().Limits().moves, 100u);  // an unknown time does not stop it
  EXPECT_EQ(UpkeepPace(microseconds(5000), {}).Limits().moves, 1u);
}

TEST(UpkeepPaceTest, SlowsDownAtOnceAndSpeedsUpSlowly) {
  UpkeepPace pace(microseconds(40), microseconds(8));
  pace.Note(PlanOf(10, 0), Took(microseconds(2000), {}));  // 200 each
  EXPECT_EQ(pace.Limits().moves, 2u);
  EXPECT_EQ(pace.Limits().returns, 50u);
  pace.Note(PlanOf(2, 5), Took(microseconds(80), microseconds(20)));
  EXPECT_EQ(pace.Limits().moves, 2u);
  for (int i = 0; i < 200; ++i) pace.Note(PlanOf(2, 5), Took(microseconds(80), microseconds(20)));
  EXPECT_EQ(pace.Limits().moves, 9u);
  EXPECT_GT(pace.Limits().returns, 90u);
}

}  // namespace
}  // namespace tare::engine
