// Random histories of submissions, cancellations, steps and time, thousands of them.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <functional>
#include <iostream>
#include <optional>

#include "engine/scheduler.h"
#include "engine/scheduler_harness.h"

namespace tare::engine {

// One entry of a random history; how the numbers are read depends on the action.
struct Action {
  std::uint8_t what, a, b, c;
};

std::ostream& operator<<(std::ostream& out, const Action& a) {
  return out << "{" << int{a.what} << "," << int{a.a} << "," << int{a.b} << "," << int{a.c} << "}";
}

}  // namespace tare::engine

namespace rc {
template <>
struct Arbitrary<tare::engine::Action> {
  static Gen<tare::engine::Action> arbitrary() {
    return gen::build<tare::engine::Action>(
        gen::set(&tare::engine::Action::what), gen::set(&tare::engine::Action::a),
        gen::set(&tare::engine::Action::b), gen::set(&tare::engine::Action::c));
  }
};
}  // namespace rc

namespace tare::engine {
namespace {

void Play(const std::vector<Action>& history, Harness& h, std::vector<StepPlan>* plans) {
  std::uint64_t next_id = 1;
  std::optional<SequenceId> last;
  for (const Action& action : history) {
    switch (action.what % 10) {
      case 0:
      case 1:
      case 2: {
        // Prompts come from a few families with long common beginnings.
        SequenceSpec spec =
            Spec(next_id++,
                 Tokens({{action.a % 3, 1 + action.a % 50}, {3 + action.b % 2, action.b % 40}}),
                 1 + action.c % 30 * (action.c % 2 == 0 ? 1 : 6));
        spec.tier = action.c % 3 == 0 ? Tier::kBatch : Tier::kInteractive;
        if (action.c % 16 == 5) spec.deadline = h.now + std::chrono::milliseconds(action.b % 40);
        if (action.c % 16 == 6) spec.use_prefix_cache = false;
        if (action.b % 4 == 1) spec.root = RootKey("tenant");
        spec.pinned_tokens = action.b % 30;
        last = spec.id;
        h.Submit(std::move(spec));
        break;
      }
      case 3: {
        if (!last || !h.prompts.contains(*last)) break;
        SequenceSpec spec = Spec(next_id++, h.prompts[*last], 1 + action.c % 10);
        spec.leader = *last;
        h.Submit(std::move(spec));
        break;
      }
      case 4:
        if (!h.open.empty()) {
          const SequenceId id = h.open[action.a % h.open.size()];
          RC_ASSERT(h.scheduler.Cancel(id));
          h.Close(id);
          h.cancelled.push_back(id);
        }
        break;
      case 5:
        h.cancel_in_flight = true;
        break;
      case 6:
        h.now += std::chrono::milliseconds(action.a);
        break;
      default:
        for (int i = 0; i < 1 + action.a % 4; ++i) {
          StepPlan plan = h.Step();
          if (plans != nullptr) plans->push_back(std::move(plan));
        }
    }
    h.scheduler.CheckInvariants();
  }
  h.cancel_in_flight = false;
}

// Under sanitizers, which cost a factor of twenty here, a tenth of the histories.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kShare = 10;
#else
constexpr int kShare = 1;
#endif

bool CheckHistories(int count, const std::function<void(const std::vector<Action>&)>& property) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = count / kShare;
  const auto result = rc::detail::checkTestable(property, rc::detail::TestMetadata{}, params);
  if (!result.is<rc::detail::SuccessResult>()) {
    rc::detail::printResultMessage(result, std::cerr);
    return false;
  }
  return true;
}

SchedulerOptions VariedOptions(std::size_t seed) {
  SchedulerOptions options = SmallOptions();
  options.pool.pages = 6 + static_cast<std::uint32_t>(seed % 3) * 7;
  options.max_num_seqs = 1 + static_cast<int>(seed % 5);
  options.max_num_batched_tokens = options.max_num_seqs + static_cast<int>(seed % 7) * 9;
  options.prefill_chunk = static_cast<int>(seed % 6) * 5;
  options.batch_window = std::chrono::milliseconds(seed % 2 * 5);
  options.prefix_cache = seed % 4 != 3;
  options.batch_tier_ageing = std::chrono::milliseconds(20);
  options.speculation = {.most = static_cast<int>(seed % 4) * 3, .adaptive = seed % 8 < 4};
  return options;
}

// Every admitted sequence ends with exactly the tokens it would have had alone: none is lost,
// none starves, and no page was read that held another's numbers.
TEST(SchedulerPropertyTest, RandomHistoriesEndWell) {
  std::uint64_t drafted = 0, accepted = 0;
  EXPECT_TRUE(CheckHistories(3000, [&](const std::vector<Action>& history) {
    const auto seed = static_cast<std::size_t>(*rc::gen::inRange(0, 420));
    Harness h(VariedOptions(seed));
    h.stop_one_in = seed % 3 == 0 ? 11 : 0;
    Play(history, h, nullptr);
    // Each step computes at least one token unless the batch window is open; preempted work is at
    // most repeated once per sequence more urgent than it.
    std::size_t work = 64;
    for (const SequenceId id : h.open) {
      work += h.prompts[id].size() + static_cast<std::size_t>(h.limits[id]) + 8;
    }
    h.RunUntilIdle(static_cast<int>(work * (h.open.size() + 1)));
    RC_ASSERT(h.scheduler.idle());
    RC_ASSERT(h.scheduler.Stats().pages_used == 0u);
    RC_ASSERT(h.finished.size() + h.expired.size() + h.cancelled.size() == h.prompts.size());
    for (const auto& [id, reason] : h.finished) {
      const std::vector<TokenId>& answer = h.answers[id];
      RC_ASSERT(answer == h.Expected(id, answer.size()));
      if (reason == FinishReason::kLength) {
        const std::size_t most = 96 - h.prompts[id].size();
        RC_ASSERT(answer.size() == std::min(static_cast<std::size_t>(h.limits[id]), most));
      }
    }
    drafted += h.scheduler.Stats().drafted_tokens;
    accepted += h.scheduler.Stats().accepted_drafts;
  }));
  // One guess in three is right in this world of three tokens.
  EXPECT_GT(accepted, 10'000u / kShare);
  EXPECT_GT(drafted, 2 * accepted);
}

TEST(SchedulerPropertyTest, RandomHistoriesOfRingsEndWell) {
  EXPECT_TRUE(CheckHistories(1000, [](const std::vector<Action>& history) {
    SchedulerOptions options = VariedOptions(static_cast<std::size_t>(*rc::gen::inRange(0, 420)));
    options.ring = true;
    options.max_num_batched_tokens += kernels::kTokensPerPage;
    Harness h(options);
    Play(history, h, nullptr);
    h.RunUntilIdle(100000);
    RC_ASSERT(h.scheduler.idle());
    RC_ASSERT(h.scheduler.Stats().pages_used == 0u);
    for (const auto& [id, reason] : h.finished) {
      RC_ASSERT(h.answers[id].size() == static_cast<std::size_t>(h.limits[id]));
    }
  }));
}

bool Same(const StepPlan& a, const StepPlan& b) {
  const auto same_slice = [](const PlannedSlice& x, const PlannedSlice& y) {
    return x.sequence == y.sequence && x.first_token == y.first_token &&
           x.num_tokens == y.num_tokens && x.start == y.start && x.first_page == y.first_page &&
           x.num_pages == y.num_pages && x.wants_logits == y.wants_logits &&
           x.num_drafts == y.num_drafts;
  };
  const auto same_copy = [](const PageCopy& x, const PageCopy& y) {
    return x.from == y.from && x.to == y.to;
  };
  return a.tokens == b.tokens && a.page_table == b.page_table && a.discarded == b.discarded &&
         std::equal(a.slices.begin(), a.slices.end(), b.slices.begin(), b.slices.end(),
                    same_slice) &&
         std::equal(a.copies.begin(), a.copies.end(), b.copies.begin(), b.copies.end(), same_copy);
}

TEST(SchedulerPropertyTest, TheSameHistoryGivesTheSamePlans) {
  EXPECT_TRUE(CheckHistories(300, [](const std::vector<Action>& history) {
    const SchedulerOptions options = VariedOptions(history.size());
    Harness first(options), second(options);
    std::vector<StepPlan> a, b;
    Play(history, first, &a);
    Play(history, second, &b);
    RC_ASSERT(std::equal(a.begin(), a.end(), b.begin(), b.end(), Same));
  }));
}

// One scheduler goes step by step, the other takes DecodesAhead() steps at once: nothing that can
// be seen from outside may tell them apart, page numbers included.
TEST(SchedulerPropertyTest, AdvancingManyStepsEqualsTakingThem) {
  std::uint64_t skipped = 0;
  EXPECT_TRUE(CheckHistories(3000, [&](const std::vector<Action>& history) {
    const auto seed = static_cast<std::size_t>(*rc::gen::inRange(0, 420));
    SchedulerOptions options = VariedOptions(seed);
    options.upkeep.moves = 0;
    options.upkeep.returns = seed % 3 == 0 ? 3 : 1000;
    options.speculation = {};
    options.batch_window = Nanos{};
    options.pool.pages = 8 + static_cast<std::uint32_t>(seed % 5) * 6;
    Scheduler slow = *Scheduler::Create(options), fast = *Scheduler::Create(options);
    Nanos now{};
    std::uint64_t next_id = 1;
    const auto one_step = [](Scheduler& scheduler, Nanos at) {
      StepPlan plan = scheduler.Plan(at);
      std::vector<SampledToken> sampled;
      for (const PlannedSlice& slice : plan.slices) {
        if (slice.wants_logits) sampled.push_back({TokenId{7}, false});
      }
      std::vector<EndedSequence> ended = scheduler.Commit(plan, sampled);
      return std::pair(std::move(plan), std::move(ended));
    };
    const auto both_step = [&] {
      const std::uint32_t ahead = fast.DecodesAhead();
      for (std::uint32_t i = 0; i < ahead; ++i) {
        const auto [plan, ended] = one_step(slow, now);
        RC_ASSERT(ended.empty());
        RC_ASSERT(plan.slices.size() == static_cast<std::size_t>(slow.Stats().running));
        for (const PlannedSlice& slice : plan.slices) RC_ASSERT(slice.num_tokens == 1u);
        RC_ASSERT(plan.copies.empty());
      }
      fast.AdvanceDecodes(ahead, TokenId{7});
      skipped += ahead;
      fast.CheckInvariants();
      const SchedulerStats a = slow.Stats(), b = fast.Stats();
      RC_ASSERT(a.running == b.running && a.waiting == b.waiting);
      RC_ASSERT(a.pages_used == b.pages_used && a.pages_cached == b.pages_cached);
      RC_ASSERT(a.stranded_share == b.stranded_share);
      RC_ASSERT(a.unused_slot_share == b.unused_slot_share);
      RC_ASSERT(a.computed_tokens == b.computed_tokens && a.preemptions == b.preemptions);
      RC_ASSERT(a.prefix_hits == b.prefix_hits && a.pages_returned == b.pages_returned);
      const auto [plan_a, ended_a] = one_step(slow, now);
      const auto [plan_b, ended_b] = one_step(fast, now);
      RC_ASSERT(Same(plan_a, plan_b));
      RC_ASSERT(ended_a.size() == ended_b.size());
      for (std::size_t i = 0; i < ended_a.size(); ++i) RC_ASSERT(ended_a[i].id == ended_b[i].id);
    };
    for (const Action& action : history) {
      now += std::chrono::milliseconds(1);
      if (action.what % 3 != 0) {
        for (int i = 0; i < 1 + action.a % 3; ++i) both_step();
        continue;
      }
      SequenceSpec spec =
          Spec(next_id++, Tokens({{action.a % 3, 1 + action.a % 50}, {7, action.b % 30}}),
               1 + action.c % 60);
      spec.tier = action.c % 3 == 0 ? Tier::kBatch : Tier::kInteractive;
      spec.use_prefix_cache = seed % 2 == 0;
      SequenceSpec copy = spec;
      RC_ASSERT(slow.Submit(std::move(spec), now).has_value());
      RC_ASSERT(fast.Submit(std::move(copy), now).has_value());
    }
    for (int i = 0; i < 20000 && !fast.idle(); ++i) both_step();
    RC_ASSERT(fast.idle() && slow.idle());
  }));
  EXPECT_GT(skipped, 10'000u);
}

}  // namespace
}  // namespace tare::engine
