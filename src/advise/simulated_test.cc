// Simulated candidates: from the plan's keys to a judged level that carries the simulation's error.
#include "advise/simulated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "advise/measurement.h"
#include "advise/prices.h"
#include "sim/efficiency.h"
#include "sim/simulate.h"

namespace tare::advise {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPlan = R"(
name: two devices
load: {rate: [1/s, 2/s], duration: 3m, input_tokens: 600, output_tokens: 100, length_cv: 0.5}
service_levels: {ttft: {p90: 2s}, tpot: {p90: 60ms}}
candidates:
  - name: a100
    simulate: {model: llama-3-8b, device: a100-80, replicas: 2}
  - name: l4
    simulate: {model: llama-3-8b, device: l4, precision: int8}
    price: 0.8/h
)";

Plan MustParse(const std::string& text) {
  auto plan = ParsePlan(text, "plan.yaml", {});
  EXPECT_TRUE(plan.has_value()) << plan.error().message;
  return *plan;
}

TEST(SimulatedTest, APlanNamesReplicas) {
  const Plan plan = MustParse(kPlan);
  ASSERT_EQ(plan.candidates.size(), 2u);
  EXPECT_EQ(plan.candidates[0].kind, Candidate::Kind::kSimulated);
  EXPECT_EQ(plan.candidates[0].machines, 2);
  EXPECT_EQ(plan.candidates[0].replica.device, "a100-80");
  const PriceList prices = *LoadPriceList("");
  const Price a100 = *PriceOf(plan.candidates[0], plan, prices, 2);
  EXPECT_EQ(a100.tag, "claimed");
  EXPECT_GT(a100.usd_per_hour, 0);
  EXPECT_FALSE(a100.source.empty());
  EXPECT_EQ(PriceOf(plan.candidates[1], plan, prices, 2)->usd_per_hour, 0.8);
}

TEST(SimulatedTest, MistakesAreNamed) {
  const auto message = [](std::string text, const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
    const auto plan = ParsePlan(text, "plan.yaml", {});
    return plan ? std::string("accepted") : plan.error().message;
  };
  EXPECT_THAT(message(kPlan, "price: 0.8/h", "runs: [latest]"), HasSubstr("one of"));
  EXPECT_THAT(message(kPlan, "simulate: {model: llama-3-8b, device: l4, precision: int8}",
                      "url: http://127.0.0.1:1"),
              HasSubstr("can only be simulated"));
  EXPECT_THAT(message(kPlan, "precision: int8", "precison: int8"), HasSubstr("precision"));
}

TEST(SimulatedTest, ALevelBecomesARecordThatSaysHowWrongItMayBe) {
  const Plan plan = MustParse(kPlan);
  const auto record = SimulateLevel(plan.candidates[0], plan.load, 2, 0, nullptr);
  ASSERT_TRUE(record.has_value()) << record.error().message;
  EXPECT_EQ(record->tag, "simulated");
  EXPECT_NEAR(record->summary.requests_per_s, 2, 0.4);
  EXPECT_GT(record->target[sim::kPredictionErrorKey]["rate"].get<double>(), 0);

  const LevelResult level = Combine(2, {*record}, plan);
  EXPECT_EQ(level.tag, "simulated");
  // The rate's error is at least the simulation's own.
  const sim::KnownError known = sim::FittedEfficiencyError();
  EXPECT_GE(level.rate_error.relative_error, known.rate);
  ASSERT_EQ(level.checks.size(), 2u);
  EXPECT_TRUE(level.KeepsLevels());
  // A limit far above what is simulated is nearly certain, but never quite.
  const LimitCheck& tpot = level.checks[1];
  EXPECT_GT(tpot.probability, 0.5);
  EXPECT_LE(tpot.probability, 1);
}

TEST(SimulatedTest, AtTheLimitItselfTheSimulationTossesACoin) {
  Plan plan = MustParse(kPlan);
  const auto record = SimulateLevel(plan.candidates[0], plan.load, 2, 0, nullptr);
  ASSERT_TRUE(record.has_value());
  const LevelResult first = Combine(2, {*record}, plan);
  const double p90 = first.checks[1].measured_s;
  plan.levels.latency[1].limit_s = p90 * 1.0001;
  EXPECT_NEAR(Combine(2, {*record}, plan).checks[1].probability, 0.5, 0.01);
  // Twice the simulated figure: the normal distribution at log 2 over its deviation.
  plan.levels.latency[1].limit_s = p90 * 2;
  const double deviation = sim::FittedEfficiencyError().rate * std::sqrt(M_PI / 2);
  const double expected = 0.5 * std::erfc(-std::log(2.0) / deviation / std::sqrt(2.0));
  EXPECT_NEAR(Combine(2, {*record}, plan).checks[1].probability, expected, 1e-6);
}

TEST(SimulatedTest, WhatDoesNotFitIsAnError) {
  Plan plan = MustParse(kPlan);
  plan.candidates[0].replica.model = "llama-3-70b";
  const auto record = SimulateLevel(plan.candidates[0], plan.load, 1, 0, nullptr);
  ASSERT_FALSE(record.has_value());
  EXPECT_THAT(record.error().message, HasSubstr("does not fit"));
}

}  // namespace
}  // namespace tare::advise
