#include "advise/measurement.h"

#include <gtest/gtest.h>

#include <cmath>

#include "advise/test_records.h"

namespace tare::advise {
namespace {

constexpr auto kE2e = static_cast<std::size_t>(Metric::kE2e);
constexpr auto kItl = static_cast<std::size_t>(Metric::kItl);
constexpr auto kP50 = static_cast<std::size_t>(Percentile::kP50);
constexpr auto kP90 = static_cast<std::size_t>(Percentile::kP90);
constexpr auto kP99 = static_cast<std::size_t>(Percentile::kP99);

Plan PlanWithLimit(double limit_s) {
  Plan plan;
  plan.levels.latency.push_back({Metric::kE2e, Percentile::kP90, limit_s});
  return plan;
}

TEST(Combine, PoolsTheRounds) {
  MadeUpRun first;
  MadeUpRun second;
  second.id = "run-2";
  second.seed = 2;
  second.tokens_per_s = 420;
  const LevelResult level = Combine(8, {MakeRun(first), MakeRun(second)}, PlanWithLimit(2));
  EXPECT_EQ(level.ok, 200u);
  EXPECT_EQ(level.samples[kE2e], 200u);
  EXPECT_DOUBLE_EQ(level.rates.output_tokens_per_s, 410);
  EXPECT_NEAR(level.rates.input_tokens_per_s, 410 * 3, 1e-9);
  EXPECT_EQ(level.rate_error.rounds, 2);
  EXPECT_GT(level.rate_error.relative_error, 0.01);
  EXPECT_LT(level.rate_error.relative_error, 0.10);
  EXPECT_NEAR(level.percentile_s[kE2e][kP50], 0.8, 0.05);
  EXPECT_NEAR(level.percentile_s[kE2e][kP90], 0.8 * 1.16, 0.03);
  EXPECT_TRUE(std::isnan(level.percentile_s[kE2e][kP99]));  // 200 of the 662 answers it takes
  EXPECT_DOUBLE_EQ(level.percentile_s[kItl][kP50], 0.02);   // from the summaries
  EXPECT_EQ(level.peak_memory_bytes, std::uint64_t{280} << 20);
  EXPECT_TRUE(level.KeepsLevels());
  EXPECT_GT(level.SloProbability(), 0.99);
  EXPECT_EQ(level.runs, (std::vector<std::string>{"run-1", "run-2"}));
}

TEST(Combine, ALimitIsMetMissedOrUnproven) {
  EXPECT_EQ(Combine(8, {MakeRun({})}, PlanWithLimit(2)).checks[0].state, LimitCheck::State::kMet);
  EXPECT_EQ(Combine(8, {MakeRun({})}, PlanWithLimit(0.7)).checks[0].state,
            LimitCheck::State::kMissed);
  MadeUpRun few;
  few.requests = 40;
  const LevelResult level = Combine(8, {MakeRun(few)}, PlanWithLimit(2));
  EXPECT_EQ(level.checks[0].state, LimitCheck::State::kUnproven);
  EXPECT_FALSE(level.KeepsLevels());
}

TEST(Combine, ALimitNearTheMeasuredValueIsUncertain) {
  const LevelResult level = Combine(8, {MakeRun({})}, PlanWithLimit(0.8 * 1.17));
  EXPECT_GT(level.SloProbability(), 0.05);
  EXPECT_LT(level.SloProbability(), 0.95);
}

TEST(Combine, FailuresCountAgainstTheLevels) {
  MadeUpRun failing;
  failing.failed = 5;
  const LevelResult level = Combine(8, {MakeRun(failing)}, PlanWithLimit(2));
  EXPECT_DOUBLE_EQ(level.error_share, 0.05);
  EXPECT_FALSE(level.errors_kept);
  EXPECT_FALSE(level.KeepsLevels());
  EXPECT_EQ(level.samples[kE2e], 95u);
}

TEST(Combine, AnInvalidRecordIsNotEvidence) {
  store::RunRecord record = MakeRun({});
  record.valid = false;
  record.checks = {{"client", false, "the client was late by 40 ms"}, {"errors", true, ""}};
  const LevelResult level = Combine(8, {record}, PlanWithLimit(2));
  ASSERT_EQ(level.invalid.size(), 1u);
  EXPECT_EQ(level.invalid[0], "client: the client was late by 40 ms");
  EXPECT_FALSE(level.KeepsLevels());
}

TEST(Combine, SummariesSpeakWhereThereIsNoSeries) {
  MadeUpRun bare;
  bare.with_series = false;
  const LevelResult level = Combine(8, {MakeRun(bare)}, PlanWithLimit(2));
  EXPECT_DOUBLE_EQ(level.percentile_s[kE2e][kP90], 0.8 * 1.15);
  EXPECT_TRUE(level.sorted_s[kE2e].empty());
  EXPECT_DOUBLE_EQ(level.rate_error.relative_error, 1);  // nothing is known of the spread
  EXPECT_TRUE(level.KeepsLevels());
}

TEST(SamplesOf, OddSeriesGiveNothing) {
  store::RunRecord record = MakeRun({});
  for (const char* text :
       {"null", "[]", "3", "{}", R"({"requests":3,"per_second":4,"window_s":[1]})",
        R"({"requests":{"e2e_s":[1,2]},"window_s":["a","b"],"per_second":{"tokens":{}}})",
        R"({"request_stride":3,"requests":{"e2e_s":[1],"ok":[1],"measured":[1]}})"}) {
    record.series = nlohmann::json::parse(text);
    const RunSamples samples = SamplesOf(record, false);
    EXPECT_TRUE(samples.latency_s[kE2e].empty()) << text;
    EXPECT_TRUE(samples.output_tokens.empty()) << text;
  }
}

TEST(SamplesOf, OnlyWholeSecondsOfTheWindow) {
  store::RunRecord record = MakeRun({});
  record.series = {{"window_s", {1.5, 4.9}}, {"per_second", {{"tokens", {1, 2, 3, 4, 5, 6}}}}};
  EXPECT_EQ(SamplesOf(record, false).output_tokens, (std::vector<double>{3, 4}));
}

}  // namespace
}  // namespace tare::advise
