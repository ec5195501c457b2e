#include "advise/advise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "advise/report_content.h"
#include "advise/report_html.h"
#include "advise/report_json.h"
#include "advise/report_markdown.h"
#include "advise/routing.h"
#include "advise/test_records.h"
#include "advise/tiers.h"
#include "base/config.h"
#include "base/files.h"

namespace tare::advise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Answers from made-up records: speed by candidate name.
class RecordedBench final : public Bench {
 public:
  std::map<std::string, double> tokens_per_s = {{"int4", 400}, {"bf16", 250}};
  std::map<std::string, double> e2e_s = {{"int4", 0.6}, {"bf16", 1.0}};
  std::map<std::string, std::string> failing;
  std::vector<std::string> events;
  bool invalid = false;

  Result<std::optional<double>> Open(const Candidate& candidate, int round) override {
    events.push_back(fmt::format("open {} {}", candidate.name, round));
    if (failing.contains(candidate.name)) {
      return Fail(ErrorKind::kUnavailable, "{}", failing[candidate.name]);
    }
    return 0.4;
  }
  Result<store::RunRecord> Measure(const Candidate& candidate, const LoadPlan&, double level,
                                   int round) override {
    MadeUpRun made;
    made.id = fmt::format("{}-{}-{}", candidate.name, level, round);
    made.users = level;
    made.tokens_per_s = tokens_per_s[candidate.name] * (level == 1 ? 0.4 : 1);
    made.e2e_s = e2e_s[candidate.name] * (level == 1 ? 0.5 : 1);
    made.seed = static_cast<std::uint64_t>(events.size()) + 1;
    events.push_back("measure " + made.id);
    store::RunRecord record = MakeRun(made);
    if (invalid) {
      record.valid = false;
      record.checks = {{"input_lengths", false, "prompts are too long"}};
    }
    return record;
  }
  Status Close(const Candidate& candidate) override {
    events.push_back("close " + candidate.name);
    return {};
  }
  Result<std::vector<store::RunRecord>> Stored(const Candidate& candidate) override {
    MadeUpRun made;
    made.id = candidate.runs[0];
    made.tokens_per_s = 100;
    return std::vector<store::RunRecord>{MakeRun(made)};
  }
};

class AdviseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tare-advise-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
    std::ofstream(dir_ / "model.gguf") << "not read here";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  Plan MakePlan(const std::string& extra = "") {
    auto plan = ParsePlan(
        "name: INT4 or BF16\n"
        "load: {users: [1, 8], requests: 100, rounds: 2}\n"
        "service_levels: {e2e: {p90: 3s}}\n" +
            extra + "candidates:\n  - {name: int4, dtype: int4}\n  - {name: bf16, dtype: bf16}\n",
        "plan.yaml", {.model = dir_ / "model.gguf", .usd_per_hour = {}});
    EXPECT_TRUE(plan) << plan.error().message;
    return *plan;
  }

  Report MustAdvise(const Plan& plan) {
    auto report =
        Advise(plan, *LoadPriceList(""), bench_,
               {.program = "tare", .tare_version = "1", .on_progress = {}, .cancelled = {}});
    EXPECT_TRUE(report) << report.error().message;
    return *report;
  }

  std::filesystem::path dir_;
  RecordedBench bench_;
};

TEST_F(AdviseTest, CandidatesTakeTurns) {
  MustAdvise(MakePlan());
  EXPECT_THAT(bench_.events,
              ElementsAre("open int4 0", "measure int4-1-0", "measure int4-8-0", "close int4",
                          "open bf16 0", "measure bf16-1-0", "measure bf16-8-0", "close bf16",
                          "open bf16 1", "measure bf16-1-1", "measure bf16-8-1", "close bf16",
                          "open int4 1", "measure int4-1-1", "measure int4-8-1", "close int4"));
}

TEST_F(AdviseTest, PicksTheCheaperAtTheBestLevelItKeeps) {
  const Report report = MustAdvise(MakePlan("price: 3.6/h\n"));
  ASSERT_EQ(report.ranking.verdict, Verdict::kPick);
  EXPECT_EQ(report.ranking.pick, 0u);
  EXPECT_EQ(report.candidates[0].operating, 1u);  // 8 users
  EXPECT_DOUBLE_EQ(*report.candidates[0].ready_s, 0.4);
  // 400 output and 1,200 input tokens/s for $0.001 a second.
  EXPECT_NEAR(report.ranking.standings[0].usd_per_million_tokens, 0.625, 1e-9);
  EXPECT_NEAR(report.ranking.difference, 1 - 250.0 / 400, 1e-9);
}

// One machine of int4 carries 138 million tokens a day for $3.60 an hour, one of bf16 86 million
// for $2.00: bf16 is the cheaper until it needs two.
TEST_F(AdviseTest, TrafficDecidesInWholeMachines) {
  Plan plan = MakePlan("price: 3.6/h\ntraffic: {tokens_per_day: 5e7}\n");
  plan.candidates[1].usd_per_hour = 2.0;
  const Report report = MustAdvise(plan);
  ASSERT_EQ(report.ranking.first, 1u);
  const nlohmann::json answer = ToJson(report)["answer"];
  EXPECT_THAT(answer["why"].get<std::string>(),
              HasSubstr("cost $0.960 at the plan's traffic with bf16"));
  const std::string change = answer["would_change"].dump();
  EXPECT_THAT(change, HasSubstr("At 87.1 million tokens a day (the plan has 50.0), int4 is the"));
  EXPECT_THAT(change, HasSubstr("bf16 cost $3.60 an hour (now $2.00)"));
  EXPECT_THAT(change, Not(HasSubstr("fully loaded")));

  plan.candidates[1].usd_per_hour = 5.0;  // never the cheaper then
  EXPECT_THAT(ToJson(MustAdvise(plan))["answer"]["would_change"].dump(), HasSubstr("Not here"));
}

TEST_F(AdviseTest, ALevelThatBreaksALimitIsNotJudged) {
  bench_.e2e_s["bf16"] = 4;  // 2 s alone, 4 s with eight users
  const Report report = MustAdvise(MakePlan());
  EXPECT_EQ(report.candidates[1].operating, 0u);
  bench_.e2e_s["bf16"] = 10;
  const Report worse = MustAdvise(MakePlan());
  EXPECT_FALSE(worse.candidates[1].feasible());
  EXPECT_EQ(worse.ranking.pick, 0u);
  const nlohmann::json json = ToJson(worse);
  EXPECT_THAT(json["answer"]["why"].get<std::string>(), HasSubstr("bf16 is out: even with 1 user"));
}

TEST_F(AdviseTest, AbstainsWhenTheyAreTheSame) {
  bench_.tokens_per_s["bf16"] = 401;
  const nlohmann::json json = ToJson(MustAdvise(MakePlan()));
  EXPECT_FALSE(json["answer"].contains("pick"));
  EXPECT_EQ(json["answer"]["abstain"], "equal");
}

TEST_F(AdviseTest, OneThatCannotBeMeasuredDoesNotEndTheOthers) {
  bench_.failing["bf16"] = "the server ended before it was ready";
  const Report report = MustAdvise(MakePlan());
  EXPECT_EQ(report.ranking.pick, 0u);
  EXPECT_THAT(report.candidates[1].error, HasSubstr("ended before"));
  EXPECT_THAT(RenderHtml(report, Words(Language::kEnglish)), HasSubstr("could not be measured"));
  bench_.failing["int4"] = "no memory";
  const auto nothing = Advise(MakePlan(), *LoadPriceList(""), bench_, {});
  ASSERT_FALSE(nothing);
  EXPECT_THAT(nothing.error().message, HasSubstr("no candidate could be measured"));
}

TEST_F(AdviseTest, AMissingModelIsFoundBeforeMeasuring) {
  Plan plan = MakePlan();
  plan.candidates[1].model = dir_ / "other.gguf";
  const auto report = Advise(plan, *LoadPriceList(""), bench_, {});
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("candidate 'bf16': no file"));
  EXPECT_TRUE(bench_.events.empty());
}

TEST_F(AdviseTest, CancellingWritesNothing) {
  AdviseOptions options;
  options.cancelled = [] { return true; };
  const auto report = Advise(MakePlan(), *LoadPriceList(""), bench_, options);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::kCancelled);
}

TEST_F(AdviseTest, StoredRunsAreCandidatesToo) {
  Plan plan = MakePlan("price: 1/h\n");
  Candidate stored;
  stored.name = "before";
  stored.kind = Candidate::Kind::kStored;
  stored.runs = {"run-7"};
  plan.candidates.push_back(stored);
  const Report report = MustAdvise(plan);
  ASSERT_EQ(report.candidates[2].levels.size(), 1u);
  EXPECT_DOUBLE_EQ(report.candidates[2].levels[0].level, 8);
  EXPECT_EQ(report.ranking.order.back(), 2u);
}

TEST_F(AdviseTest, JsonHasTheStableKeys) {
  const nlohmann::json json = ToJson(MustAdvise(MakePlan()));
  EXPECT_EQ(json["schema"], "tare.report/1");
  EXPECT_EQ(json["answer"]["pick"], "int4");
  EXPECT_TRUE(json["answer"]["why"].is_string());
  ASSERT_EQ(json["candidates"].size(), 2u);
  for (const auto& candidate : json["candidates"]) {
    EXPECT_TRUE(candidate["name"].is_string());
    EXPECT_EQ(candidate["tag"], "measured");
    EXPECT_TRUE(candidate["slo_met"].is_boolean());
    EXPECT_TRUE(candidate["cost_per_million_tokens"].is_number());
    EXPECT_TRUE(candidate["p_best"].is_number());
  }
  ASSERT_GT(json["evidence"].size(), 20u);
  for (const auto& one : json["evidence"]) {
    EXPECT_THAT(one["tag"].get<std::string>(),
                ::testing::AnyOf("measured", "computed", "claimed", "assumed", "simulated"));
    EXPECT_FALSE(one["source"].get<std::string>().empty()) << one.dump();
  }
}

TEST_F(AdviseTest, HtmlLoadsNothingAndTagsEveryFigure) {
  const Report report = MustAdvise(MakePlan());
  for (const Language language : {Language::kEnglish, Language::kChinese}) {
    const std::string html = RenderHtml(report, Words(language));
    for (const char* loader :
         {"src=", "<script", "<link", "@import", "url(", "<iframe", "<object"}) {
      EXPECT_THAT(html, Not(HasSubstr(loader)));
    }
    EXPECT_THAT(html, Not(HasSubstr("{{")));
    EXPECT_THAT(html, HasSubstr("<svg"));
    EXPECT_THAT(html, HasSubstr("@media print"));
    // Every numeric cell says how it is known.
    const std::regex untagged("<td class=\"num[^\"]*\">");
    EXPECT_FALSE(std::regex_search(html, untagged));
    const std::regex cell("<td class=\"num[^\"]*\" data-tag=\"([a-z]*)\">([^<]*)");
    int cells = 0;
    for (auto it = std::sregex_iterator(html.begin(), html.end(), cell);
         it != std::sregex_iterator(); ++it, ++cells) {
      const std::string tag = (*it)[1];
      const std::string text = (*it)[2];
      const bool figure = text.find_first_of("0123456789") != std::string::npos;
      EXPECT_FALSE(figure && tag == "none") << text;
    }
    EXPECT_GT(cells, 60);
  }
}

TEST_F(AdviseTest, HostileNamesStayText) {
  Plan plan = MakePlan();
  const std::string evil = "<img src=x onerror=alert(1)>|`*\"'&\x01";
  plan.name = evil;
  plan.text = evil;
  plan.candidates[0].name = evil;
  bench_.tokens_per_s[evil] = 400;
  bench_.e2e_s[evil] = 0.6;
  const Report report = MustAdvise(plan);
  const std::string html = RenderHtml(report, Words(Language::kEnglish));
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, HasSubstr("&lt;img"));
  // Code fences hold text as it is; everywhere else it is escaped.
  const std::string markdown = RenderMarkdown(report, Words(Language::kEnglish));
  bool fenced = false;
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    if (line == "```") {
      fenced = !fenced;
    } else if (!fenced) {
      EXPECT_THAT(line, Not(HasSubstr("<img")));
    }
  }
  const auto routing = config::Document::Parse(RenderRouting(report), "routing.yaml");
  ASSERT_TRUE(routing) << routing.error().message;
}

TEST_F(AdviseTest, RoutingSendsEachTierToItsBest) {
  bench_.e2e_s["bf16"] = 0.3;  // slower in all, faster for one
  const Report report = MustAdvise(MakePlan());
  const auto document = config::Document::Parse(RenderRouting(report), "routing.yaml");
  ASSERT_TRUE(document) << document.error().message;
  const config::Value root = document->root();
  EXPECT_EQ(root["schema"].String(), "tare.routing/1");
  EXPECT_EQ(root["tiers"]["interactive"]["upstream"].String(), "bf16");
  EXPECT_EQ(root["tiers"]["batch"]["upstream"].String(), "int4");
  EXPECT_EQ(root["upstreams"]["int4"]["dtype"].String(), "int4");
  EXPECT_EQ(root["upstreams"]["bf16"]["kind"].String(), "local");
}

TEST_F(AdviseTest, RoutingFileAndReportSayTheSameOfWaiting) {
  const Report report = MustAdvise(MakePlan());
  const std::string file = RenderRouting(report);
  EXPECT_THAT(file, HasSubstr("within: 60000ms"));
  const std::vector<std::string> said = ContentOf(report, Words(Language::kEnglish)).routing;
  ASSERT_EQ(said.size(), 2u);
  EXPECT_THAT(said[0], HasSubstr("are answered within the service levels, and a request that"));
  EXPECT_THAT(said[1], HasSubstr("would wait longer than 60.0 s for its turn is turned away"));
  EXPECT_THAT(said[1], Not(HasSubstr("service levels")));
}

TEST_F(AdviseTest, InteractiveTrafficWithoutLatencyLimitsWaitsAMinuteToo) {
  Plan plan = MakePlan();
  plan.levels.latency.clear();
  const Tiers tiers = ChooseTiers(MustAdvise(plan));
  ASSERT_TRUE(tiers.interactive);
  EXPECT_EQ(tiers.interactive->wait_s, 60);
  EXPECT_EQ(tiers.batch->wait_s, 60);
}

TEST_F(AdviseTest, InvalidLoadsAreCautionedOfByTheCheckTheyFailed) {
  Report report = MustAdvise(MakePlan());
  std::vector<LevelResult>& levels = report.candidates[0].levels;
  levels[0].invalid = {"input_lengths: prompts are too long"};
  levels[1].invalid = {"client: late by 40 ms", "client: late by 60 ms",
                       "input_lengths: prompts are far too long"};
  std::vector<std::string> invalid;
  for (const std::string& one : ContentOf(report, Words(Language::kEnglish)).cautions) {
    if (one.find("not a valid measurement") != std::string::npos) invalid.push_back(one);
  }
  EXPECT_THAT(invalid,
              ElementsAre("int4 with 1 user; 8 users: not a valid measurement (input_lengths: "
                          "prompts are too long).",
                          "int4 with 8 users: not a valid measurement (client: late by 40 ms)."));
}

TEST_F(AdviseTest, ServeArgumentsAreOneWordALine) {
  Plan plan = MakePlan();
  plan.candidates[0].threads = 2;
  plan.candidates[0].flags = {"--max-num-seqs", "16"};
  std::string words;
  std::istringstream lines(RenderServeArguments(MustAdvise(plan)));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('#')) words += line + " ";
  }
  EXPECT_EQ(words, "--dtype int4 --threads 2 --max-num-seqs 16 ");
}

TEST_F(AdviseTest, NobodyFeasibleIsSaidPlainly) {
  bench_.e2e_s = {{"int4", 20}, {"bf16", 30}};
  const Report report = MustAdvise(MakePlan());
  EXPECT_EQ(ToJson(report)["answer"]["abstain"], "none_feasible");
  EXPECT_THAT(RenderHtml(report, Words(Language::kEnglish)),
              HasSubstr("No candidate keeps the service levels."));
  EXPECT_THAT(RenderRouting(report), HasSubstr("tiers: {}"));
}

TEST_F(AdviseTest, InvalidMeasurementsAreNotCalledBrokenLevels) {
  bench_.invalid = true;
  const Report report = MustAdvise(MakePlan());
  EXPECT_EQ(report.ranking.verdict, Verdict::kNoneFeasible);
  EXPECT_THAT(RenderHtml(report, Words(Language::kEnglish)),
              HasSubstr("No candidate was measured validly"));
}

TEST_F(AdviseTest, WritesFiveFiles) {
  const auto files = WriteReport(MustAdvise(MakePlan()), Words(Language::kEnglish), dir_ / "out");
  ASSERT_TRUE(files) << files.error().message;
  for (const auto& path :
       {files->html, files->markdown, files->json, files->routing, files->serve_args}) {
    EXPECT_GT(std::filesystem::file_size(path), 50u) << path;
  }
  const auto json = nlohmann::json::parse(*ReadFile(files->json), nullptr, false);
  EXPECT_TRUE(json.is_object());
}

TEST(Words, BothLanguagesSayTheSameThings) {
  EXPECT_EQ(Words(Language::kEnglish).Keys(), Words(Language::kChinese).Keys());
}

TEST(Format, ForPeople) {
  EXPECT_EQ(FormatFigure(1234.5), "1,234");
  EXPECT_EQ(FormatFigure(1234567), "1,234,567");
  EXPECT_EQ(FormatFigure(56.78), "56.8");
  EXPECT_EQ(FormatFigure(0.012345), "0.0123");
  EXPECT_EQ(FormatUsd(0.012345), "$0.0123");
  EXPECT_EQ(FormatUsd(12.3), "$12.30");
  EXPECT_EQ(FormatSeconds(0.0812), "81.2 ms");
  EXPECT_EQ(FormatSeconds(1.239), "1.24 s");
  EXPECT_EQ(FormatShare(0.415), "42 %");
  EXPECT_EQ(FormatShare(0.9999), "> 99.9 %");
}

}  // namespace
}  // namespace tare::advise
