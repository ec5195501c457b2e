// For the scheduler's tests: a loop around a scheduler with an executor that sees every misuse of a
// page and a "model" whose answer is known beforehand.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "kernels/kv_pages.h"

namespace tare::engine {

inline SchedulerOptions SmallOptions() {
  SchedulerOptions options;
  options.pool = {.pages = 16, .pages_per_slab = 4, .reserve_slabs = 1};
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 40;
  options.max_model_len = 96;
  options.upkeep = {.moves = 3, .returns = 5};
  return options;
}

inline std::vector<TokenId> Tokens(std::initializer_list<std::pair<int, int>> runs) {
  std::vector<TokenId> tokens;  // (value, count) runs
  for (const auto& [value, count] : runs) tokens.insert(tokens.end(), count, TokenId{value});
  return tokens;
}

inline SequenceSpec Spec(std::uint64_t id, std::vector<TokenId> prompt, int max_new) {
  SequenceSpec spec;
  spec.id = SequenceId{id};
  spec.prompt = std::move(prompt);
  spec.max_new_tokens = max_new;
  return spec;
}

// Stands in for the executor: instead of keys and values, a slot of a page holds the hash of its
// token and all tokens before it, so reading a wrong, stale or overwritten page is seen.
class TracingExecutor {
 public:
  explicit TracingExecutor(std::uint32_t pages)
      : slots_(std::size_t{pages} * kernels::kTokensPerPage) {}

  void Run(const StepPlan& plan) {
    for (const PageCopy& copy : plan.copies) {
      std::copy_n(slots_.begin() + ToInt(copy.from) * kernels::kTokensPerPage,
                  kernels::kTokensPerPage,
                  slots_.begin() + ToInt(copy.to) * kernels::kTokensPerPage);
    }
    for (const PageId page : plan.discarded) {
      std::fill_n(slots_.begin() + ToInt(page) * kernels::kTokensPerPage, kernels::kTokensPerPage,
                  Slot{});
    }
    std::map<PageId, SequenceId> writer;
    for (const PlannedSlice& slice : plan.slices) {
      std::vector<std::uint64_t>& known = known_[slice.sequence];
      // What the pages say about the tokens already computed.
      std::uint64_t last = 0;
      for (std::uint32_t i = 0; i < slice.start; ++i) {
        const Slot& slot = At(plan, slice, i);
        RC_ASSERT(slot.hash != 0u);
        RC_ASSERT(slot.position == i + slice.rotation);
        if (slice.rotation == 0 && i < known.size()) RC_ASSERT(slot.hash == known[i]);
        last = slot.hash;
      }
      known.resize(slice.start);
      for (std::uint32_t i = 0; i < slice.start; ++i) known[i] = At(plan, slice, i).hash;
      for (std::uint32_t i = 0; i < slice.num_tokens; ++i) {
        const std::uint32_t index = slice.start + i;
        const PageId page = plan.page_table[slice.first_page + index / kernels::kTokensPerPage];
        const auto [it, fresh] = writer.emplace(page, slice.sequence);
        RC_ASSERT(fresh || it->second == slice.sequence);
        last = Chain(last, plan.tokens[slice.first_token + i]);
        At(plan, slice, index) = {last, index + slice.rotation};
        known.push_back(last);
      }
    }
    for (const PlannedSlice& slice : plan.slices) {
      for (std::uint32_t i = 0; i < slice.num_pages; ++i) {
        const auto it = writer.find(plan.page_table[slice.first_page + i]);
        // In brackets: the macro takes expressions apart, and then || evaluates both sides.
        RC_ASSERT((it == writer.end() || it->second == slice.sequence));
      }
    }
  }

  // The hash of everything a sequence has computed up to its `index`-th token in pages: what the
  // logits of that row depend on.
  std::uint64_t At(SequenceId id, std::uint32_t index) const { return known_.at(id).at(index); }

  static std::uint64_t Chain(std::uint64_t before, TokenId token) {
    const std::uint64_t input[2] = {before, static_cast<std::uint64_t>(ToInt(token)) + 1};
    return XXH3_64bits(input, sizeof input) | 1;
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;      // of the token and all before it
    std::uint32_t position = 0;  // its key is rotated for
  };
  Slot& At(const StepPlan& plan, const PlannedSlice& slice, std::uint32_t index) {
    const PageId page = plan.page_table[slice.first_page + index / kernels::kTokensPerPage];
    return slots_[ToInt(page) * kernels::kTokensPerPage + index % kernels::kTokensPerPage];
  }
  std::vector<Slot> slots_;
  std::map<SequenceId, std::vector<std::uint64_t>> known_;
};

// A scheduler with its loop: what it was asked, what came out.
struct Harness {
  explicit Harness(const SchedulerOptions& o)
      : options(o), scheduler(*Scheduler::Create(o)), executor(o.pool.pages) {}

  void Submit(SequenceSpec spec) {
    const SequenceId id = spec.id;
    prompts[id] = spec.prompt;
    limits[id] = spec.max_new_tokens;
    ASSERT_TRUE(scheduler.Submit(std::move(spec), now).has_value());
    open.push_back(id);
  }

  void Close(SequenceId id) { open.erase(std::find(open.begin(), open.end(), id)); }

  // One step. The "model" answers with a token that depends on all tokens before.
  StepPlan Step() {
    StepPlan plan = scheduler.Plan(now);
    for (const SequenceId id : scheduler.TakeExpired()) {
      expired.push_back(id);
      Close(id);
    }
    RC_ASSERT(plan.tokens.size() <= static_cast<std::size_t>(options.max_num_batched_tokens));
    RC_ASSERT(plan.slices.size() <=
              static_cast<std::size_t>(options.max_num_seqs) * (options.ring ? 2 : 1));
    executor.Run(plan);
    // A step of a few rows takes hardly longer than one of one row, as on a real machine.
    scheduler.NoteStepTime(plan, std::chrono::microseconds(1000 + 40 * plan.tokens.size()));
    std::vector<SampledToken> sampled;
    for (const PlannedSlice& slice : plan.slices) {
      const std::uint32_t rows = slice.logit_rows();
      const auto drafts =
          std::span(plan.tokens)
              .subspan(slice.first_token + slice.num_tokens - slice.num_drafts, slice.num_drafts);
      bool counts = true;  // all drafts before this row were right
      for (std::uint32_t row = 0; row < rows; ++row) {
        const std::uint64_t hash =
            executor.At(slice.sequence, slice.start + slice.num_tokens - rows + row);
        const SampledToken token{TokenId{static_cast<std::int32_t>(hash % 3)},
                                 stop_one_in > 0 && hash % stop_one_in == 0};
        sampled.push_back(token);
        if (!counts) continue;
        if (!token.stop) answers[slice.sequence].push_back(token.token);
        counts = !token.stop && row < drafts.size() && token.token == drafts[row];
      }
    }
    if (cancel_in_flight && !open.empty()) {
      const SequenceId id = open[static_cast<std::size_t>(now.count()) % open.size()];
      scheduler.Cancel(id);
      Close(id);
      cancelled.push_back(id);
      cancel_in_flight = false;
    }
    for (const EndedSequence& ended : scheduler.Commit(plan, sampled)) {
      finished[ended.id] = ended.reason;
      Close(ended.id);
    }
    scheduler.CheckInvariants();
    now += std::chrono::milliseconds(1);
    return plan;
  }

  int RunUntilIdle(int limit) {
    int steps = 0;
    while (!scheduler.idle() && steps < limit) {
      Step();
      ++steps;
    }
    return steps;
  }

  // What the model says after `prompt` when it is alone in the world.
  std::vector<TokenId> Expected(SequenceId id, std::size_t length) const {
    std::vector<TokenId> answer;
    std::uint64_t hash = 0;
    for (const TokenId token : prompts.at(id)) hash = TracingExecutor::Chain(hash, token);
    while (answer.size() < length) {
      answer.push_back(TokenId{static_cast<std::int32_t>(hash % 3)});
      hash = TracingExecutor::Chain(hash, answer.back());
    }
    return answer;
  }

  SchedulerOptions options;
  Scheduler scheduler;
  TracingExecutor executor;
  Nanos now{1'000'000'000};
  std::uint64_t stop_one_in = 0;
  bool cancel_in_flight = false;
  std::map<SequenceId, std::vector<TokenId>> prompts, answers;
  std::map<SequenceId, int> limits;
  std::map<SequenceId, FinishReason> finished;
  std::vector<SequenceId> open, expired, cancelled;
};

}  // namespace tare::engine
