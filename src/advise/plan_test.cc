#include "advise/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>

#include "advise/prices.h"

namespace tare::advise {
namespace {

using ::testing::HasSubstr;

const PlanOverrides kModel = {.model = "model.gguf", .usd_per_hour = {}};

std::string PlanError(std::string_view text, const PlanOverrides& overrides = kModel) {
  const auto plan = ParsePlan(text, "plan.yaml", overrides);
  return plan ? "" : plan.error().message;
}

TEST(Plan, TheDemoPlanIsAPlan) {
  const auto plan =
      LoadPlanFile(std::filesystem::path(TARE_SOURCE_DIR) / "examples/demo.yaml", kModel);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->candidates.size(), 2u);
  EXPECT_EQ(plan->candidates[0].dtype, "int4");
  EXPECT_EQ(plan->candidates[1].dtype, "bf16");
  EXPECT_EQ(plan->candidates[1].model, "model.gguf");
  EXPECT_FALSE(plan->levels.latency.empty());
  // Every level ends by time, so that the whole demo stays under five minutes on any machine.
  const double seconds = ToSeconds(plan->load.duration + plan->load.warm_up.value_or(Nanos(0))) *
                         static_cast<double>(plan->load.levels.size()) * plan->load.rounds *
                         static_cast<double>(plan->candidates.size());
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, 240);
}

TEST(Plan, ReadsEveryKindOfCandidate) {
  const auto plan = ParsePlan(R"(
name: mix
load: {rate: [2/s, 30/min], duration: 20s, input_tokens: 512, warm_up: 2s, shared_prefix: 50%}
service_levels: {ttft: {p90: 500ms, p99: 2s}, error_rate: 2%, quality: 0.4}
traffic: {tokens_per_day: 5e8, peak_to_mean: 3}
utilisation: 60%
candidates:
  - {name: here, model: a.gguf, dtype: int8, threads: 2, flags: [--max-num-seqs, "16"], price: 0.2/h,
     quality: {metric: score, value: 0.5, better: higher, source: somebody}}
  - {name: there, url: "https://example.org/v1", model: big, api_key_env: KEY, machine: h100, machines: 2,
     quality: {metric: score, value: 0.6, better: higher, source: somebody}}
  - {name: before, runs: [latest], price: 1/h,
     quality: {metric: score, value: 0.3, better: higher, source: somebody}}
)",
                              "plan.yaml", {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_TRUE(plan->load.open_loop);
  EXPECT_EQ(plan->load.levels, (std::vector<double>{0.5, 2}));
  EXPECT_EQ(plan->load.requests, 0u);
  EXPECT_EQ(plan->levels.latency.size(), 2u);
  EXPECT_DOUBLE_EQ(plan->levels.latency[1].limit_s, 2);
  EXPECT_EQ(plan->candidates[0].kind, Candidate::Kind::kLocal);
  EXPECT_EQ(plan->candidates[0].flags.size(), 2u);
  EXPECT_EQ(plan->candidates[1].kind, Candidate::Kind::kRemote);
  EXPECT_EQ(plan->candidates[1].served_model, "big");
  EXPECT_EQ(plan->candidates[2].kind, Candidate::Kind::kStored);
  EXPECT_DOUBLE_EQ(plan->traffic->tokens_per_day, 5e8);
}

TEST(Plan, UnknownKeysNameTheNearest) {
  EXPECT_EQ(PlanError("name: x\nload:\n  usrs: 8\ncandidates:\n  - {name: a, dtpe: int4}\n"),
            "plan.yaml:3: load.usrs: unknown key 'usrs'; did you mean 'users'?\n"
            "plan.yaml:5: candidates[0].dtpe: unknown key 'dtpe'; did you mean 'dtype'?");
  EXPECT_THAT(PlanError("name: x\ncandiates: []\n"), HasSubstr("did you mean 'candidates'?"));
}

TEST(Plan, MistakesAreNamedWhereTheyAre) {
  EXPECT_THAT(PlanError("name: x\ncandidates: [{name: a, dtype: f15}]\n"),
              HasSubstr("plan.yaml:2: candidates[0].dtype: expected one of auto, f32, bf16, int8, "
                        "int4; got 'f15'"));
  EXPECT_THAT(PlanError("name: x\ncandidates: [{name: a}, {name: a}]\n"),
              HasSubstr("two candidates are named 'a'"));
  EXPECT_THAT(PlanError("name: x\ncandidates: [{name: a}]\n", {}), HasSubstr("no model to serve"));
  EXPECT_THAT(PlanError("name: x\ncandidates: [{name: a, simulate: {model: llama-7b, device: a10}, "
                        "runs: [r]}]\n"),
              HasSubstr("come from one of"));
  EXPECT_THAT(PlanError("name: x\nload: {users: 0}\ncandidates: [{name: a}]\n"),
              HasSubstr("load.users: expected 1 to 100000, got 0"));
  EXPECT_THAT(PlanError("name: x\nload: {users: 1, rate: 2/s}\ncandidates: [{name: a}]\n"),
              HasSubstr("not both"));
  EXPECT_THAT(PlanError("name: x\nload: {users: [2, 2]}\ncandidates: [{name: a}]\n"),
              HasSubstr("given twice"));
  EXPECT_THAT(PlanError("name: x\nload: {duration: 60}\ncandidates: [{name: a}]\n"),
              HasSubstr("duration with its unit"));
  EXPECT_THAT(PlanError("name: x\ncandidates: []\n"), HasSubstr("expected 1 to 64 candidates"));
  EXPECT_THAT(PlanError("name: x\n"), HasSubstr("candidates: is missing"));
  EXPECT_THAT(PlanError("name: x\nservice_levels: {quality: 1}\ncandidates: [{name: a}]\n"),
              HasSubstr("needs a quality for every candidate"));
  EXPECT_THAT(PlanError("name: x\nservice_levels: {ttft: {p91: 1s}}\ncandidates: [{name: a}]\n"),
              HasSubstr("did you mean 'p90'?"));
}

TEST(Prices, TheBuiltInListIsReadAndTagged) {
  const auto list = LoadPriceList("");
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(list->per_vcpu.tag, "assumed");
  ASSERT_TRUE(list->machines.contains("h100"));
  EXPECT_DOUBLE_EQ(list->machines.at("h100").usd_per_hour, 4.5);
  EXPECT_EQ(list->machines.at("h100").tag, "claimed");
  for (const auto& [name, price] : list->machines) {
    EXPECT_FALSE(price.source.empty()) << name;
    EXPECT_EQ(price.date.size(), 10u) << name;
  }
}

TEST(Prices, TheNearestSourceOfAPriceWins) {
  const PriceList list = *LoadPriceList("");
  Plan plan;
  plan.source = "plan.yaml";
  Candidate candidate;
  candidate.name = "a";
  EXPECT_DOUBLE_EQ(PriceOf(candidate, plan, list, 4)->usd_per_hour, 0.2);  // 4 × 0.05
  EXPECT_EQ(PriceOf(candidate, plan, list, 4)->tag, "assumed");
  plan.usd_per_hour = 7;
  EXPECT_DOUBLE_EQ(PriceOf(candidate, plan, list, 4)->usd_per_hour, 7);
  candidate.machine = "l4";
  EXPECT_DOUBLE_EQ(PriceOf(candidate, plan, list, 4)->usd_per_hour, 0.8);
  candidate.usd_per_hour = 1;
  EXPECT_DOUBLE_EQ(PriceOf(candidate, plan, list, 4)->usd_per_hour, 1);
  Candidate remote;
  remote.kind = Candidate::Kind::kRemote;
  plan.usd_per_hour.reset();
  EXPECT_THAT(PriceOf(remote, plan, list, 4).error().message, HasSubstr("has no price"));
  remote.machine = "h10";
  EXPECT_THAT(PriceOf(remote, plan, list, 4).error().message, HasSubstr("did you mean 'h100'?"));
}

TEST(Prices, BadListsAreRefused) {
  EXPECT_FALSE(ParsePriceList("schema: tare.prices/2\n", "p"));
  EXPECT_FALSE(
      ParsePriceList("schema: tare.prices/1\ncurrency: USD\nsource: s\ndate: yesterday\n"
                     "tag: claimed\nlocal: {usd_per_vcpu_hour: 1}\n",
                     "p"));
}

RC_GTEST_PROP(Plan, NeverCrashesOnAnyText, (const std::string& text)) {
  (void)ParsePlan(text, "plan.yaml", {});
  (void)ParsePriceList(text, "prices.yaml");
}

}  // namespace
}  // namespace tare::advise
