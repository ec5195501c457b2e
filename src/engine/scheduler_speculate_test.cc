// What drafts do to plans, case by case; random histories are in scheduler_property_test.cc.
#include <gtest/gtest.h>

#include "engine/scheduler.h"
#include "engine/scheduler_harness.h"

namespace tare::engine {
namespace {

SchedulerOptions Drafting(int most) {
  SchedulerOptions options = SmallOptions();
  options.speculation = {.most = most, .adaptive = false};
  return options;
}

// A scheduler with one sequence that has answered once and now repeats 1 2 3 4 ...
struct Repeating {
  explicit Repeating(const SchedulerOptions& options) : scheduler(*Scheduler::Create(options)) {
    SequenceSpec spec = Spec(1, {}, 40);
    for (int i = 0; i < 12; ++i) spec.prompt.push_back(TokenId{1 + i % 6});
    EXPECT_TRUE(scheduler.Submit(std::move(spec), Nanos{}).has_value());
    const StepPlan prompt = scheduler.Plan(Nanos{});
    EXPECT_EQ(prompt.slices[0].num_drafts, 0u);
    const std::vector<SampledToken> first = {{TokenId{1}, false}};
    EXPECT_TRUE(scheduler.Commit(prompt, first).empty());
  }
  Scheduler scheduler;
};

std::vector<SampledToken> Tokens(std::initializer_list<int> values) {
  std::vector<SampledToken> tokens;
  for (const int value : values) tokens.push_back({TokenId{value}, false});
  return tokens;
}

TEST(SchedulerSpeculateTest, WhatWasRightCountsAndTheRestIsForgotten) {
  Repeating r(Drafting(5));
  StepPlan plan = r.scheduler.Plan(Nanos{});
  ASSERT_EQ(plan.slices.size(), 1u);
  EXPECT_EQ(plan.slices[0].num_drafts, 5u);
  EXPECT_EQ(plan.slices[0].num_tokens, 6u);
  EXPECT_EQ(plan.slices[0].start, 12u);
  EXPECT_EQ(plan.slices[0].logit_rows(), 6u);
  EXPECT_EQ(plan.slices[0].num_pages, 2u);  // 18 tokens
  std::vector<TokenId> expected;
  for (const int value : {1, 2, 3, 4, 5, 6}) expected.push_back(TokenId{value});
  EXPECT_EQ(plan.tokens, expected);
  // Two drafts were right, the third was not; what the rows behind it say is of no interest.
  EXPECT_TRUE(r.scheduler.Commit(plan, Tokens({2, 3, 9, 5, 6, 1})).empty());
  r.scheduler.CheckInvariants();
  const SchedulerStats stats = r.scheduler.Stats();
  EXPECT_EQ(stats.draft_turns, 1u);
  EXPECT_EQ(stats.drafted_tokens, 5u);
  EXPECT_EQ(stats.accepted_drafts, 2u);
  EXPECT_EQ(stats.pages_used, 1u);  // the page only wrong drafts were in is given back
  plan = r.scheduler.Plan(Nanos{});
  EXPECT_EQ(plan.slices[0].start, 15u);
  EXPECT_EQ(plan.tokens[0], TokenId{9});
  EXPECT_EQ(plan.slices[0].num_drafts, 0u);  // nothing ever followed 3 9
}

TEST(SchedulerSpeculateTest, AnEndAmongTheDraftsEndsTheSequence) {
  Repeating r(Drafting(5));
  const StepPlan plan = r.scheduler.Plan(Nanos{});
  std::vector<SampledToken> sampled = Tokens({2, 3, 4, 5, 6, 1});
  sampled[1].stop = true;
  const auto ended = r.scheduler.Commit(plan, sampled);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].reason, FinishReason::kStop);
  EXPECT_TRUE(r.scheduler.idle());
  EXPECT_EQ(r.scheduler.Stats().pages_used, 0u);
  EXPECT_EQ(r.scheduler.Stats().accepted_drafts, 1u);
}

TEST(SchedulerSpeculateTest, DraftsGetWhatOthersLeave) {
  SchedulerOptions options = Drafting(8);
  options.max_num_batched_tokens = 12;
  Repeating r(options);
  // A prompt takes all that is left of the step.
  ASSERT_TRUE(r.scheduler.Submit(Spec(2, engine::Tokens({{7, 11}}), 3), Nanos{}).has_value());
  StepPlan plan = r.scheduler.Plan(Nanos{});
  ASSERT_EQ(plan.slices.size(), 2u);
  EXPECT_EQ(plan.slices[0].num_drafts, 0u);
  EXPECT_EQ(plan.slices[1].num_tokens, 11u);
  r.scheduler.Commit(plan, Tokens({2, 8}));
  // Now both decode, one of them with something to repeat.
  plan = r.scheduler.Plan(Nanos{});
  EXPECT_EQ(plan.slices[0].num_drafts, 8u);
  EXPECT_EQ(plan.slices[1].num_drafts, 0u);
  EXPECT_LE(plan.tokens.size(), 12u);
}

TEST(SchedulerSpeculateTest, NoPageIsTakenThatOthersSoonNeed) {
  SchedulerOptions options = Drafting(8);
  options.pool.pages = 6;
  Repeating r(options);
  // Another takes four pages in two steps, so one is left: each of the two may soon need it.
  ASSERT_TRUE(r.scheduler.Submit(Spec(2, engine::Tokens({{7, 51}}), 3), Nanos{}).has_value());
  StepPlan plan = r.scheduler.Plan(Nanos{});
  ASSERT_EQ(plan.slices.size(), 2u);
  EXPECT_EQ(plan.slices[0].num_drafts, 0u);  // the prompt took the budget
  r.scheduler.Commit(plan, Tokens({2}));
  plan = r.scheduler.Plan(Nanos{});
  EXPECT_EQ(plan.slices[0].start, 13u);
  EXPECT_EQ(plan.slices[0].num_drafts, 2u);  // to the end of the page it has
  r.scheduler.Commit(plan, Tokens({3, 4, 5, 8}));
  r.scheduler.CheckInvariants();
  EXPECT_EQ(r.scheduler.Stats().preemptions, 0u);
}

TEST(SchedulerSpeculateTest, LimitsAndWishesAreKept) {
  Scheduler scheduler = *Scheduler::Create(Drafting(8));
  SequenceSpec plain = Spec(2, engine::Tokens({{5, 20}}), 4);
  plain.speculate = false;
  ASSERT_TRUE(scheduler.Submit(Spec(1, engine::Tokens({{5, 20}}), 4), Nanos{}).has_value());
  ASSERT_TRUE(scheduler.Submit(std::move(plain), Nanos{}).has_value());
  std::uint32_t most = 0;
  while (!scheduler.idle()) {
    const StepPlan plan = scheduler.Plan(Nanos{});
    std::size_t rows = 0;
    for (const PlannedSlice& slice : plan.slices) {
      rows += slice.logit_rows();
      if (slice.sequence == SequenceId{1}) most = std::max(most, slice.num_drafts);
      if (slice.sequence == SequenceId{2}) {
        EXPECT_EQ(slice.num_drafts, 0u);
      }
    }
    scheduler.Commit(plan, std::vector<SampledToken>(rows, {TokenId{5}, false}));
  }
  // One token is there and four are allowed: two drafts and what follows them.
  EXPECT_EQ(most, 2u);
}

}  // namespace
}  // namespace tare::engine
