#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "econ/cases.h"
#include "econ/quantity.h"
#include "econ/roi_case.h"
#include "econ/run_points.h"
#include "econ/scenario_reader.h"
#include "econ/scenario_report.h"

namespace tare::econ {
namespace {

using ::testing::HasSubstr;

const Catalog& BuiltIn() {
  static const Catalog catalog = *Catalog::BuiltIn();
  return catalog;
}
std::filesystem::path Examples() {
  return std::filesystem::path(TARE_SOURCE_DIR) / "examples/scenarios";
}

Result<Scenario> Read(std::string_view yaml) {
  TARE_TRY(config::Document document, config::Document::Parse(yaml, "scenario.yaml"));
  return ReadScenario(document, BuiltIn());
}

std::string Minimal(const std::string& option, const std::string& rate = "8 %/year") {
  return "name: t\ncurrency: USD\ndiscounting: {rate: " + rate +
         ", timing: end}\ntraffic: {requests: 864000 requests/day, input: 800 tokens/request, "
         "output: 200 tokens/request}\noptions: [" +
         option + "]\n";
}

TEST(ScenarioReader, ReadsNumbersInTheirUnits) {
  const Scenario scenario = *Read(Minimal(
      "{name: a, capacity: 180 requests/min, rent: 48 USD/day, autoscaling: {start_up: 2 min}}"));
  EXPECT_DOUBLE_EQ(scenario.options[0].values.capacity_requests_per_second, 3);
  EXPECT_DOUBLE_EQ(scenario.options[0].values.rent_per_device_hour, 2);
  EXPECT_DOUBLE_EQ(scenario.options[0].values.start_up_seconds, 120);
  EXPECT_DOUBLE_EQ(scenario.horizon.discounting.rate_per_year, 0.08);
}

TEST(ScenarioReader, MistakesNameThePlaceAndTheRemedy) {
  auto message = [](const std::string& option) {
    auto scenario = Read(Minimal(option));
    return scenario ? std::string("accepted") : scenario.error().message;
  };
  EXPECT_THAT(message("{name: a, rent: 2, capacity: 3 requests/s}"), HasSubstr("has no unit"));
  EXPECT_THAT(message("{name: a, rent: 2 USD/kWh, capacity: 3 requests/s}"),
              HasSubstr("another kind"));
  EXPECT_THAT(message("{name: a, rent: 2 EUR/h, capacity: 3 requests/s}"),
              HasSubstr("currency is USD"));
  EXPECT_THAT(message("{name: a, rnet: 2 USD/h}"), HasSubstr("did you mean 'rent'"));
  EXPECT_THAT(message("{name: a, rent: 2 USD/h}"), HasSubstr("needs a capacity"));
  EXPECT_THAT(message("{name: a, device: h10}"), HasSubstr("did you mean"));
  EXPECT_THAT(message("{name: a, fixed: {value: 1 USD/year, uniform: [2 USD/year, 1 USD/year]}}"),
              HasSubstr("must not fall"));
  EXPECT_THAT(message("{name: a, fixed: {value: 1 USD/year, normal: 1 USD/year, plus_minus: 3 %}}"),
              HasSubstr("2 distributions"));
  EXPECT_THAT(message("{name: a}, {name: a}"), HasSubstr("two options"));
  EXPECT_THAT(Read(Minimal("{name: a}", "8")).error().message, HasSubstr("no unit"));
}

// Rented: 10/3 -> 4 instances at 2 USD/h = 70,080 a year, as in tco_test; uncertain by +-10 %.
TEST(ScenarioReport, AnswersAgreeWithTheHandCalculation) {
  const Scenario scenario = *Read(
      Minimal("{name: rented, capacity: 3 requests/s, rent: {value: 2 USD/h, plus_minus: 10 %}}, "
              "{name: service, tokens: {input: 0.2 USD/Mtoken, output: 0.3 USD/Mtoken}}"));
  const ScenarioAnswer answer = Answer(scenario, 20'000, 3, nullptr);
  EXPECT_NEAR(answer.options[0].cost_first_year, 70'080, 1e-6);
  // 252,288 M * 0.2 + 63,072 M * 0.3 = 69,379.2.
  EXPECT_NEAR(answer.options[1].cost_first_year, 69'379.2, 1e-6);
  EXPECT_NEAR(answer.monte_carlo.options[0].mean, 180'602.96, 150);
  EXPECT_GT(answer.monte_carlo.p_lower[1][0], 0.5);
  const nlohmann::json json = ScenarioJson(scenario, answer);
  for (const char* key : {"name", "npv", "cost_per_million_tokens"}) {
    EXPECT_TRUE(json["options"][0].contains(key)) << key;
  }
  EXPECT_NEAR(json["options"][0]["npv"].get<double>(), -180'602.96, 0.1);
  EXPECT_TRUE(json["options"][0]["cost_per_million_tokens"]["input"].is_null());
  EXPECT_NEAR(json["options"][1]["cost_per_million_tokens"]["output"].get<double>(), 0.3, 1e-12);
  EXPECT_THAT(ScenarioText(scenario, answer), HasSubstr("70,080"));
}

TEST(ScenarioReport, FocusRowsOfRentedDevices) {
  const Scenario scenario =
      *Read(Minimal("{name: \"a, b\", capacity: 3 requests/s, rent: 2 USD/h}"));
  const std::string csv = ScenarioFocusCsv(scenario, Answer(scenario, 0, 1, nullptr), 2027);
  EXPECT_THAT(csv, HasSubstr(",5840.000000,\"a, b\",\"a, b\",USD,2027-02-01T00:00:00Z,"));
  EXPECT_THAT(csv, HasSubstr("2029-12-01T00:00:00Z"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 36);
}

// The two-way matrix and the tornado are in every form a person reads.
TEST(ScenarioReport, TwoWayMatrixInTextAndPage) {
  auto document = config::Document::Load(Examples() / "self_built_or_rented.yaml");
  const Scenario scenario = *ReadScenario(*document, BuiltIn());
  const ScenarioAnswer answer = Answer(scenario, 2'000, 1, nullptr);
  const std::string text = ScenarioText(scenario, answer);
  EXPECT_THAT(text, HasSubstr("by its two widest inputs"));
  EXPECT_THAT(text, HasSubstr("at about 2 % load"));
  const std::string page = ScenarioHtml(scenario, answer);
  EXPECT_THAT(page, HasSubstr("<table class=\"matrix\">"));
  ASSERT_FALSE(answer.matrix.cells.empty());
  const std::string corner = FormatNumber(answer.matrix.cells.back().back());
  EXPECT_THAT(text, HasSubstr(corner));
  EXPECT_THAT(page, HasSubstr(corner));
}

TEST(ScenarioReport, PageIsSelfContained) {
  auto document = config::Document::Load(Examples() / "self_built_or_rented.yaml");
  ASSERT_TRUE(document.has_value());
  Result<Scenario> scenario = ReadScenario(*document, BuiltIn());
  ASSERT_TRUE(scenario.has_value()) << scenario.error().message;
  const std::string page = ScenarioHtml(*scenario, Answer(*scenario, 5'000, 1, nullptr));
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_EQ(page.find("http://"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("inf\""), std::string::npos);
}

TEST(ScenarioExamples, PublishedBreakEven) {
  auto document = config::Document::Load(Examples() / "break_even.yaml");
  const Scenario scenario = *ReadScenario(*document, BuiltIn());
  const ScenarioAnswer answer = Answer(scenario, 0, 1, nullptr);
  ASSERT_EQ(answer.pairs[0].break_even.size(), 1u);
  EXPECT_NEAR(answer.pairs[0].break_even[0].tokens_per_day, 52.838e6, 0.001e6);
}

nlohmann::json Case(const char* kind) {
  auto document = config::Document::Load(Examples() / (std::string(kind) + ".yaml"));
  EXPECT_TRUE(document.has_value()) << kind;
  auto answer = AnswerCase(kind, *document, BuiltIn());
  EXPECT_TRUE(answer.has_value()) << answer.error().message;
  return answer.value_or(nlohmann::json());
}

TEST(CaseExamples, EveryKindHasAFileThatRuns) {
  for (const std::string& kind : CaseKinds()) {
    const nlohmann::json answer = Case(kind.c_str());
    EXPECT_TRUE(answer.contains("name")) << kind;
    EXPECT_THAT(CaseText(kind, answer), HasSubstr(answer["name"].get<std::string>())) << kind;
  }
}

TEST(CaseExamples, WhatWasPublishedAndDoesNotFollowIsCorrected) {
  const nlohmann::json roi = Case("roi");
  EXPECT_NEAR(roi["options"][2]["npv"].get<double>(), 53.45, 0.01);
  EXPECT_FALSE(roi["options"][2]["published"]["follows"].get<bool>());
  EXPECT_THAT(roi["options"][2]["published"]["note"].get<std::string>(), HasSubstr("four"));
  EXPECT_THAT(CaseText("roi", roi), HasSubstr("422.1 comes out"));
  EXPECT_THAT(CaseText("roi", roi), HasSubstr("a currency that was not published"));
  EXPECT_EQ(roi["sensitivity"]["npv"].size(), 6u);
  // Summed term by term outside the program, as in docs/ECONOMICS.md.
  EXPECT_NEAR(roi["sensitivity"]["npv"][0][0].get<double>(), -119.0802, 1e-3);
  EXPECT_NEAR(roi["sensitivity"]["npv"][5][4].get<double>(), 135.8625, 1e-3);
  const nlohmann::json maas = Case("maas");
  EXPECT_NEAR(maas["options"][0]["present_cost"].get<double>(), 747.03, 0.01);
  EXPECT_FALSE(maas["options"][0]["published"]["follows"].get<bool>());
  const nlohmann::json penalty = Case("penalty");
  EXPECT_NEAR(penalty["avoided_per_year"].get<double>(), 189.52, 0.001);
  const nlohmann::json hidden = Case("hidden");
  EXPECT_NEAR(hidden["drift_detection"]["cpu_hours_per_year"].get<double>(), 1.46, 1e-6);
  EXPECT_TRUE(hidden["prompt_staff"]["published"]["follows"].get<bool>());
  EXPECT_TRUE(hidden["audits"][0]["published"]["follows"].get<bool>());
  EXPECT_TRUE(Case("training")["options"][1]["published"]["follows"].get<bool>());
  EXPECT_NEAR(Case("compute")["options"][0]["device_seconds_per_request"].get<double>(), 8.8363e-3,
              1e-7);
}

TEST(CaseExamples, ReturnOnInvestmentIsDrawnTheSameOnAnyNumberOfThreads) {
  const auto answer = [](int threads) {
    auto document = config::Document::Load(Examples() / "roi.yaml");
    ThreadPool pool(threads);
    return *AnswerCase("roi", *document, BuiltIn(), {20'000, 3, &pool});
  };
  const nlohmann::json one = answer(1);
  EXPECT_EQ(one, answer(2));
  const nlohmann::json& hopeful = one["options"][2];
  EXPECT_GT(hopeful["npv_distribution"]["p_above_zero"].get<double>(), 0.5);
  EXPECT_LT(hopeful["npv_distribution"]["p10"].get<double>(), hopeful["npv"].get<double>());
  EXPECT_EQ(hopeful["tornado"].size(), 3u);
  EXPECT_EQ(one["pairs"].size(), 3u);
  const std::string text = CaseText("roi", one);
  for (const char* part : {"NPV by growth and replacement", "above zero in", "cautious beats",
                           "what moves hopeful most"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const std::string page = RoiHtml(one);
  EXPECT_THAT(page, HasSubstr("<table class=\"matrix\">"));
  EXPECT_THAT(page, HasSubstr("What moves hopeful"));
  EXPECT_EQ(page.find("<script"), std::string::npos);
}

nlohmann::json RunRecord(double rate, double ttft_p95) {
  return {{"schema", "tare.run/1"},
          {"tag", "measured"},
          {"validity", {{"verdict", "valid"}}},
          {"summary",
           {{"rates", {{"requests_per_s", rate}, {"goodput_per_s", 0.9 * rate}}},
            {"latency_s",
             {{"ttft", {{"intended", {{"p95", ttft_p95}}}}},
              {"itl", {{"intended", {{"p95", nullptr}}}}}}}}}};
}

// Records at 4/s with 0.4 s and 8/s with 0.9 s: a level of 0.5 s is met up to 4.8/s.
TEST(ScenarioReader, CapacityFromRunRecords) {
  const RunLoader loader = [](std::string_view path) {
    return LoadPointFromRun(path == "low.json" ? RunRecord(4, 0.4) : RunRecord(8, 0.9));
  };
  auto read = [&](const std::string& level) {
    auto document = config::Document::Parse(
        "service_level: {" + level + "}\n" +
            Minimal("{name: a, rent: 2 USD/h, runs: [low.json, high.json]}"),
        "scenario.yaml");
    return ReadScenario(*document, BuiltIn(), loader);
  };
  const Scenario scenario = *read("ttft_p95: 500 ms");
  EXPECT_NEAR(scenario.options[0].values.capacity_requests_per_second, 4.8, 1e-9);
  EXPECT_NEAR(scenario.options[0].values.goodput_share, 0.9, 1e-12);
  // A percentile without enough samples never counts as met.
  EXPECT_THAT(read("itl_p95: 50 ms").error().message,
              HasSubstr("'low.json' answered too few requests for a P95 of the time between"));
  EXPECT_THAT(read("ttft_p95: 50 ms").error().message, HasSubstr("no point meets"));
}

// Two runs of `tare load` against `tare serve` with the real model, as they were recorded.
TEST(ScenarioExamples, CapacityFromRecordedRuns) {
  auto document = config::Document::Load(Examples() / "measured.yaml");
  ASSERT_TRUE(document.has_value());
  const RunLoader loader = [](std::string_view path) -> Result<LoadPoint> {
    TARE_TRY(std::string text, ReadFile(Examples() / path));
    return LoadPointFromRun(nlohmann::json::parse(text, nullptr, false));
  };
  const Result<Scenario> scenario = ReadScenario(*document, BuiltIn(), loader);
  ASSERT_TRUE(scenario.has_value()) << scenario.error().message;
  const ScenarioOption& served = scenario->options[0];
  ASSERT_TRUE(served.measured.has_value());
  EXPECT_EQ(served.measured->tag, "measured");
  const LoadPoint low = *loader("runs/smollm2-int8-1.json");
  const LoadPoint high = *loader("runs/smollm2-int8-2.json");
  EXPECT_GE(served.values.capacity_requests_per_second, low.requests_per_second * 0.999);
  EXPECT_LE(served.values.capacity_requests_per_second, high.requests_per_second * 1.001);
  const ScenarioAnswer answer = Answer(*scenario, 0, 1, nullptr);
  EXPECT_THAT(ScenarioText(*scenario, answer), HasSubstr("requests/s, measured"));
}

TEST(ScenarioReader, InvalidRunsAreRefused) {
  nlohmann::json run = RunRecord(4, 0.4);
  run["validity"]["verdict"] = "invalid";
  EXPECT_THAT(LoadPointFromRun(run).error().message, HasSubstr("invalid run"));
  EXPECT_FALSE(LoadPointFromRun(nlohmann::json::array()).has_value());
  EXPECT_FALSE(LoadPointFromRun({{"schema", "tare.run/1"}}).has_value());
}

TEST(ScenarioReader, AnyTextIsRefusedOrRead) {
  EXPECT_TRUE(rc::check("never crashes", [](const std::string& text) {
    (void)Read(text);
    (void)Read(Minimal("{name: a, fixed: \"" + std::string(text.begin(), text.end()) + "\"}"));
  }));
}

}  // namespace
}  // namespace tare::econ
