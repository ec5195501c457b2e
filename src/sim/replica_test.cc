// One replica: exact times by hand, and that going fast changes nothing.
#include "sim/replica.h"

#include <gtest/gtest.h>

#include <tuple>

#include "load/random.h"

namespace tare::sim {
namespace {

using std::chrono::milliseconds;

// 10 ms a step, 1 ms a row.
class HandTime final : public StepTime {
 public:
  double Seconds(const StepLoad& load) const override { return 0.010 + 0.001 * load.rows; }
  nlohmann::json Describe() const override { return "by hand"; }
};

// Every term of a load counts, with digits that no rounding hides.
class OddTime final : public StepTime {
 public:
  double Seconds(const StepLoad& load) const override {
    return 0.0031 + 1.7e-5 * load.rows + 0.9e-6 * load.decode_context +
           3.3e-8 * load.prefill_pairs + 1.1e-7 * load.prefill_context + 2e-5 * load.logit_rows;
  }
  nlohmann::json Describe() const override { return "odd"; }
};

struct Seen final : ReplicaObserver {
  using Line = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  std::vector<Line> lines;  // of ended answers
  std::uint64_t tokens = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> gaps;  // time, gap; one a token
  void OnTokens(Nanos at, std::uint64_t count, Nanos gap, std::uint64_t) override {
    tokens += count;
    for (std::uint64_t i = 0; i < count; ++i) gaps.emplace_back(at.count(), gap.count());
  }
  void OnFirstToken(Nanos) override { ++tokens; }
  void OnEnd(const Answer& answer) override {
    lines.emplace_back(answer.request.index, answer.first_token.count(), answer.last_token.count(),
                       answer.longest_gap.count());
  }
};

ReplicaOptions SmallReplica() {
  ReplicaOptions options;
  options.scheduler.pool.pages = 64;
  options.scheduler.max_num_seqs = 4;
  options.scheduler.max_num_batched_tokens = 64;
  options.scheduler.max_model_len = 512;
  options.scheduler.batch_window = Nanos{0};
  return options;
}

SimRequest Request(std::uint64_t index, int input, int output) {
  SimRequest request;
  request.index = index;
  request.input_tokens = input;
  request.output_tokens = output;
  return request;
}

TEST(ReplicaTest, TimesAreThoseOfTheSteps) {
  Seen seen;
  Replica replica = *Replica::Create(SmallReplica(), std::make_shared<HandTime>(), seen);
  ASSERT_TRUE(replica.Submit(Request(1, 20, 3), milliseconds(100), true).has_value());
  // Comes while the first prompt is computed (100 ms to 130 ms) and is seen when that step ends.
  replica.AdvanceTo(milliseconds(105), false);
  ASSERT_TRUE(replica.Submit(Request(2, 9, 2), milliseconds(105), true).has_value());
  replica.AdvanceTo(Nanos::max(), false);
  // Prompt 20: 30 ms. Then one decode and nine prompt tokens: 20 ms. Then two decodes: 12 ms.
  ASSERT_EQ(seen.lines.size(), 2u);
  const auto ms = [](int n) { return std::int64_t{n} * 1'000'000; };
  EXPECT_EQ(seen.lines[0], Seen::Line(1, ms(130), ms(162), ms(20)));
  EXPECT_EQ(seen.lines[1], Seen::Line(2, ms(150), ms(162), ms(12)));
  EXPECT_EQ(replica.steps(), 3u);
  EXPECT_EQ(replica.NextEvent(), Nanos::max());
}

TEST(ReplicaTest, AnIdleEngineWaitsForCompany) {
  ReplicaOptions options = SmallReplica();
  options.scheduler.batch_window = milliseconds(5);
  Seen seen;
  Replica replica = *Replica::Create(options, std::make_shared<HandTime>(), seen);
  ASSERT_TRUE(replica.Submit(Request(1, 10, 1), milliseconds(100), true).has_value());
  replica.AdvanceTo(milliseconds(103), false);
  ASSERT_TRUE(replica.Submit(Request(2, 10, 1), milliseconds(103), true).has_value());
  replica.AdvanceTo(Nanos::max(), false);
  ASSERT_EQ(seen.lines.size(), 2u);
  // Both in one step from 105 ms on: 10 + 20 ms.
  EXPECT_EQ(std::get<1>(seen.lines[0]), 135'000'000);
  EXPECT_EQ(std::get<1>(seen.lines[1]), 135'000'000);
}

TEST(ReplicaTest, RefusesWhatCannotFit) {
  Seen seen;
  Replica replica = *Replica::Create(SmallReplica(), std::make_shared<HandTime>(), seen);
  EXPECT_FALSE(replica.Submit(Request(1, 512, 1), milliseconds(1), true).has_value());
  EXPECT_EQ(replica.in_system(), 0u);
}

TEST(ReplicaTest, WhatItAbandonsHasNotEnded) {
  Seen seen;
  Replica replica = *Replica::Create(SmallReplica(), std::make_shared<HandTime>(), seen);
  ASSERT_TRUE(replica.Submit(Request(1, 20, 50), milliseconds(100), true).has_value());
  replica.AdvanceTo(milliseconds(145), false);  // first token at 130, the next ones at 141, 152
  const std::vector<Answer> open = replica.Abandon();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].tokens, 2);
  EXPECT_EQ(open[0].last_token, milliseconds(141));
  EXPECT_EQ(replica.NextEvent(), Nanos::max());
}

// The same random traffic, step by step and at once: every time of every answer and every gap is
// the same to the nanosecond, under pressure for pages and places, with and without shared
// prefixes, and wherever the caller stops in between.
TEST(ReplicaTest, GoingFastChangesNothing) {
  std::uint64_t slow_tokens = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Seen seen[2];
    std::uint64_t steps[2], preemptions[2], hits[2];
    double busy[2];
    for (const bool fast : {false, true}) {
      load::Random random(seed);
      ReplicaOptions options = SmallReplica();
      options.scheduler.pool.pages = 32 + static_cast<std::uint32_t>(random.Below(64));
      options.scheduler.prefill_chunk = static_cast<int>(random.Below(3)) * 16;
      options.scheduler.batch_window = milliseconds(random.Below(2) * 5);
      options.fast_forward = fast;
      Replica replica = *Replica::Create(options, std::make_shared<OddTime>(), seen[fast]);
      Nanos now = milliseconds(1);
      for (std::uint64_t i = 0; i < 40; ++i) {
        now += FromSeconds(random.Exponential() * (seed % 3 == 0 ? 0.02 : 0.3));
        replica.AdvanceTo(now, false);
        SimRequest request = Request(i, 1 + static_cast<int>(random.Below(120)),
                                     1 + static_cast<int>(random.Below(200)));
        if (random.Below(4) == 0) request.tier = engine::Tier::kBatch;
        if (seed % 2 == 0) request.blocks = {{random.Below(3), 40}};
        ASSERT_TRUE(replica.Submit(std::move(request), now, random.Below(2) == 0).has_value());
      }
      replica.AdvanceTo(Nanos::max(), false);
      EXPECT_EQ(replica.in_system(), 0u);
      steps[fast] = replica.steps();
      busy[fast] = replica.busy_seconds();
      preemptions[fast] = replica.Stats().preemptions;
      hits[fast] = replica.Stats().prefix_hits;
    }
    EXPECT_EQ(seen[0].lines, seen[1].lines) << "seed " << seed;
    EXPECT_EQ(seen[0].tokens, seen[1].tokens);
    std::sort(seen[0].gaps.begin(), seen[0].gaps.end());
    std::sort(seen[1].gaps.begin(), seen[1].gaps.end());
    EXPECT_EQ(seen[0].gaps, seen[1].gaps) << "seed " << seed;
    EXPECT_EQ(steps[0], steps[1]);
    EXPECT_EQ(busy[0], busy[1]);
    EXPECT_EQ(preemptions[0], preemptions[1]);
    EXPECT_EQ(hits[0], hits[1]);
    slow_tokens += seen[0].tokens;
  }
  EXPECT_GT(slow_tokens, 100'000u);
}

}  // namespace
}  // namespace tare::sim
