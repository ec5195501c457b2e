#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include "engine/scheduler_harness.h"

namespace tare::engine {
namespace {

TEST(SchedulerTest, ChunksAPromptWhileOthersDecode) {
  Harness h(SmallOptions());
  h.Submit(Spec(1, Tokens({{1, 10}}), 50));
  h.Step();
  h.Submit(Spec(2, Tokens({{2, 70}}), 4));
  StepPlan plan = h.Step();
  ASSERT_EQ(plan.slices.size(), 2u);
  EXPECT_EQ(plan.slices[0].num_tokens, 1u);
  EXPECT_EQ(plan.slices[1].num_tokens, 39u);
  EXPECT_FALSE(plan.slices[1].wants_logits);
  plan = h.Step();
  EXPECT_EQ(plan.slices[0].num_tokens, 1u);
  EXPECT_EQ(plan.slices[1].num_tokens, 31u);
  EXPECT_TRUE(plan.slices[1].wants_logits);
  h.RunUntilIdle(100);
  EXPECT_EQ(h.answers[SequenceId{1}], h.Expected(SequenceId{1}, 50));
}

TEST(SchedulerTest, PromptsGetSmallerChunksBesideAnswers) {
  SchedulerOptions options = SmallOptions();
  options.prefill_chunk = 8;
  Harness h(options);
  h.Submit(Spec(1, Tokens({{1, 40}}), 20));
  EXPECT_EQ(h.Step().tokens.size(), 40u);  // nobody is waiting for a next token
  h.Submit(Spec(2, Tokens({{2, 20}}), 1));
  EXPECT_EQ(h.Step().tokens.size(), 1u + 8u);
  EXPECT_EQ(h.Step().tokens.size(), 1u + 8u);
  EXPECT_EQ(h.Step().tokens.size(), 1u + 4u);
  EXPECT_TRUE(h.finished.contains(SequenceId{2}));
}

TEST(SchedulerTest, WaitsForCompanyOnlyWhenIdle) {
  SchedulerOptions options = SmallOptions();
  options.batch_window = std::chrono::milliseconds(5);
  options.batch_window_requests = 3;
  Harness h(options);
  h.Submit(Spec(1, Tokens({{1, 4}}), 30));
  EXPECT_EQ(h.scheduler.WakeAt(), h.now + std::chrono::milliseconds(5));
  EXPECT_TRUE(h.Step().empty());
  h.Submit(Spec(2, Tokens({{2, 4}}), 30));
  EXPECT_TRUE(h.Step().empty());
  h.Submit(Spec(3, Tokens({{3, 4}}), 30));
  EXPECT_EQ(h.Step().slices.size(), 3u);  // the third fills the window
  h.Submit(Spec(4, Tokens({{4, 4}}), 30));
  EXPECT_EQ(h.Step().slices.size(), 4u);  // joins at once

  Harness late(options);
  late.Submit(Spec(1, Tokens({{1, 4}}), 1));
  late.now += std::chrono::milliseconds(5);
  EXPECT_EQ(late.Step().slices.size(), 1u);
}

TEST(SchedulerTest, SharesAPromptSeenBefore) {
  Harness h(SmallOptions());
  h.Submit(Spec(1, Tokens({{1, 40}}), 1));
  h.RunUntilIdle(10);
  h.Submit(Spec(2, Tokens({{1, 40}, {2, 3}}), 1));
  const StepPlan plan = h.Step();
  EXPECT_EQ(plan.slices.at(0).start, 32u);
  EXPECT_EQ(plan.slices.at(0).num_tokens, 11u);
  EXPECT_EQ(h.scheduler.Stats().prefix_hits, 32u);
  EXPECT_EQ(h.answers[SequenceId{2}], h.Expected(SequenceId{2}, 1));
}

TEST(SchedulerTest, APromptCachedInWholeCopiesItsLastPage) {
  Harness h(SmallOptions());
  h.Submit(Spec(1, Tokens({{1, 32}}), 1));
  h.RunUntilIdle(10);
  h.Submit(Spec(2, Tokens({{1, 32}}), 3));
  const StepPlan plan = h.Step();
  EXPECT_EQ(plan.slices.at(0).num_tokens, 1u);
  EXPECT_EQ(plan.copies.size(), 1u);
  h.RunUntilIdle(10);
  EXPECT_EQ(h.answers[SequenceId{2}], h.Expected(SequenceId{2}, 3));
}

TEST(SchedulerTest, PromptsSubmittedTogetherComputeTheirPrefixOnce) {
  SchedulerOptions options = SmallOptions();
  options.max_num_batched_tokens = 200;
  Harness h(options);
  for (std::uint64_t id = 1; id <= 4; ++id) {
    h.Submit(Spec(id, Tokens({{1, 48}, {static_cast<int>(id) + 1, 4}}), 2));
  }
  EXPECT_EQ(h.Step().tokens.size(), 52u);
  EXPECT_EQ(h.Step().tokens.size(), 1u + 3 * 4u);
  h.RunUntilIdle(10);
  for (std::uint64_t id = 1; id <= 4; ++id) {
    EXPECT_EQ(h.answers[SequenceId{id}], h.Expected(SequenceId{id}, 2));
  }
}

TEST(SchedulerTest, SaltsKeepPrefixesApart) {
  Harness h(SmallOptions());
  SequenceSpec first = Spec(1, Tokens({{1, 40}}), 1);
  first.root = RootKey("a");
  h.Submit(std::move(first));
  h.RunUntilIdle(10);
  SequenceSpec second = Spec(2, Tokens({{1, 40}}), 1);
  second.root = RootKey("b");
  h.Submit(std::move(second));
  EXPECT_EQ(h.Step().slices.at(0).num_tokens, 40u);
}

TEST(SchedulerTest, ForksShareThePromptAndCopyOnlyTheLastPage) {
  for (const bool cache : {true, false}) {
    SchedulerOptions options = SmallOptions();
    options.prefix_cache = cache;
    Harness h(options);
    h.Submit(Spec(1, Tokens({{1, 40}}), 5));
    for (std::uint64_t id = 2; id <= 3; ++id) {
      SequenceSpec fork = Spec(id, Tokens({{1, 40}}), 5);
      fork.leader = SequenceId{1};
      h.Submit(std::move(fork));
    }
    EXPECT_EQ(h.Step().tokens.size(), 40u);
    const StepPlan plan = h.Step();
    EXPECT_EQ(plan.tokens.size(), 3u);
    EXPECT_EQ(plan.copies.size(), 2u);  // the last owner writes in place
    EXPECT_EQ(h.scheduler.Stats().pages_used, 2u + 3u);
    h.RunUntilIdle(20);
    for (std::uint64_t id = 1; id <= 3; ++id) {
      EXPECT_EQ(h.answers[SequenceId{id}], h.Expected(SequenceId{id}, 5));
    }
  }
}

TEST(SchedulerTest, PreemptsTheLeastUrgentWhenPagesRunOut) {
  SchedulerOptions options = SmallOptions();
  options.pool.pages = 6;
  Harness h(options);
  h.Submit(Spec(1, Tokens({{1, 30}}), 60));
  h.Submit(Spec(2, Tokens({{2, 30}}), 60));
  h.RunUntilIdle(400);
  EXPECT_TRUE(h.scheduler.idle());
  EXPECT_GT(h.scheduler.Stats().preemptions, 0u);
  EXPECT_EQ(h.answers[SequenceId{1}], h.Expected(SequenceId{1}, 60));
  EXPECT_EQ(h.answers[SequenceId{2}], h.Expected(SequenceId{2}, 60));
}

// Who is admitted into the last pages is soon preempted by those that grow.
TEST(SchedulerTest, AdmissionLeavesPagesToGrowInto) {
  for (const std::uint32_t pages : {64u, 65u}) {
    SchedulerOptions options = SmallOptions();
    options.pool.pages = pages;
    options.max_model_len = 1024;
    options.max_num_batched_tokens = 1024;
    options.prefix_cache = false;
    Harness h(options);
    h.Submit(Spec(1, Tokens({{1, 62 * 16 - 8}}), 6));
    h.Step();
    h.Submit(Spec(2, Tokens({{2, 8}}), 2));  // one page; two are to stay free
    EXPECT_EQ(h.Step().slices.size(), pages == 64 ? 1u : 2u);
    h.RunUntilIdle(20);
    EXPECT_EQ(h.answers[SequenceId{2}], h.Expected(SequenceId{2}, 2));
    EXPECT_EQ(h.scheduler.Stats().preemptions, 0u);
  }
}

TEST(SchedulerTest, InteractiveRequestsOvertakeBatchOnes) {
  SchedulerOptions options = SmallOptions();
  options.max_num_seqs = 1;
  Harness h(options);
  SequenceSpec batch = Spec(1, Tokens({{1, 20}}), 20);
  batch.tier = Tier::kBatch;
  h.Submit(std::move(batch));
  h.Step();
  h.Submit(Spec(2, Tokens({{2, 20}}), 5));
  EXPECT_EQ(h.Step().slices.at(0).sequence, SequenceId{2});
  h.RunUntilIdle(100);
  EXPECT_EQ(h.answers[SequenceId{1}], h.Expected(SequenceId{1}, 20));
}

TEST(SchedulerTest, AnAgedBatchRequestIsNotOvertaken) {
  SchedulerOptions options = SmallOptions();
  options.max_num_seqs = 1;
  options.batch_tier_ageing = std::chrono::seconds(2);
  Harness h(options);
  SequenceSpec batch = Spec(1, Tokens({{1, 20}}), 20);
  batch.tier = Tier::kBatch;
  h.Submit(std::move(batch));
  h.now += std::chrono::seconds(3);
  h.Submit(Spec(2, Tokens({{2, 20}}), 5));
  EXPECT_EQ(h.Step().slices.at(0).sequence, SequenceId{1});
}

TEST(SchedulerTest, DropsWhatIsPastItsDeadline) {
  Harness h(SmallOptions());
  SequenceSpec spec = Spec(1, Tokens({{1, 20}}), 50);
  spec.deadline = h.now + std::chrono::milliseconds(3);
  h.Submit(std::move(spec));
  h.RunUntilIdle(20);
  EXPECT_EQ(h.expired, std::vector<SequenceId>{SequenceId{1}});
  EXPECT_EQ(h.scheduler.Stats().pages_used, 0u);
}

TEST(SchedulerTest, ARingGoesOnAtConstantMemory) {
  SchedulerOptions options = SmallOptions();
  options.ring = true;
  options.pool.pages = 6;
  Harness h(options);
  SequenceSpec spec = Spec(1, Tokens({{1, 20}}), 500);
  spec.pinned_tokens = 20;
  h.Submit(std::move(spec));
  int steps = 0;
  while (!h.scheduler.idle()) {
    const StepPlan plan = h.Step();
    EXPECT_LE(plan.page_table.size(),
              8u);  // twice the pinned pages when they are recomputed
    EXPECT_LE(h.scheduler.Stats().pages_used, 6u);
    for (const PlannedSlice& slice : plan.slices) EXPECT_LE(slice.start + slice.num_tokens, 96u);
    ASSERT_LT(++steps, 600);
  }
  EXPECT_EQ(h.answers[SequenceId{1}].size(), 500u);
  EXPECT_EQ(h.scheduler.Stats().preemptions, 0u);
  EXPECT_GT(h.scheduler.Stats().pages_recycled, 20u);
}

TEST(SchedulerTest, RefusesWhatCannotRun) {
  Harness h(SmallOptions());
  EXPECT_EQ(h.scheduler.Submit(Spec(1, {}, 1), h.now).error().param, "prompt");
  EXPECT_EQ(h.scheduler.Submit(Spec(1, Tokens({{1, 96}}), 1), h.now).error().param, "prompt");
  EXPECT_EQ(h.scheduler.Submit(Spec(1, Tokens({{1, 9}}), 0), h.now).error().param, "max_tokens");
  SchedulerOptions options = SmallOptions();
  options.pool.pages = 5;
  EXPECT_EQ(Scheduler::Create(options).error().param, "kv_memory");
  options = SmallOptions();
  options.max_num_batched_tokens = 3;
  EXPECT_EQ(Scheduler::Create(options).error().param, "max_num_batched_tokens");
}

}  // namespace
}  // namespace tare::engine
