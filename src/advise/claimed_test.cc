// Vendors' figures as candidates: held against the devices' limits, taken on when nothing forbids.
#include "advise/claimed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "advise/advise.h"
#include "advise/report_content.h"
#include "advise/tiers.h"

namespace tare::advise {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Nothing is measured: every candidate brings its figures.
class NoBench final : public Bench {
 public:
  Result<std::optional<double>> Open(const Candidate&, int) override { return std::nullopt; }
  Result<store::RunRecord> Measure(const Candidate&, const LoadPlan&, double, int) override {
    return Fail(ErrorKind::kUnavailable, "nothing is measured here");
  }
  Status Close(const Candidate&) override { return {}; }
  Result<std::vector<store::RunRecord>> Stored(const Candidate&) override {
    return std::vector<store::RunRecord>{};
  }
};

Plan MustParse(const std::string& candidates, const std::string& more = "") {
  auto plan = ParsePlan(
      "name: leaflets\nload: {users: [32], input_tokens: 2048, output_tokens: 512}\n"
      "service_levels: {ttft: {p90: 2s}, tpot: {p90: 60ms}}\n" +
          more + "\ncandidates:\n" + candidates,
      "plan.yaml", {});
  EXPECT_TRUE(plan) << plan.error().message;
  return *plan;
}

Result<Report> AdviseOn(const Plan& plan) {
  NoBench bench;
  return Advise(plan, *LoadPriceList(""), bench,
                {.program = "tare", .tare_version = "1", .on_progress = {}, .cancelled = {}});
}

constexpr const char* kModest =
    "  - name: modest\n"
    "    claimed: {model: deepseek-v3, device: h200, devices: 8, precision: fp8, users: 32,\n"
    "              output_tokens_per_s: 900, ttft: {p90: 1s}, tpot: {p90: 35ms}, source: "
    "leaflet}\n";
const std::string kModest2 =
    std::string(kModest).replace(std::string(kModest).find("modest"), 6, "other");
// 32 GB of active weights a token and sequence: 8 × 4.8 TB/s allow 1,200 tokens/s a sequence,
// 38,000 of 32, if all of them chose the same experts.
constexpr const char* kWild =
    "  - name: wild\n"
    "    claimed: {model: kimi-k2, device: h200, devices: 8, precision: fp8, users: 32,\n"
    "              output_tokens_per_s: 60000, source: leaflet}\n";

TEST(Claimed, FiguresThatNothingForbidsCompeteAndSayWhatTheyAre) {
  const auto report = AdviseOn(MustParse(kModest));
  ASSERT_TRUE(report) << report.error().message;
  const CandidateResult& modest = report->candidates[0];
  EXPECT_TRUE(modest.impossible.empty()) << modest.impossible;
  ASSERT_EQ(modest.levels.size(), 1u);
  EXPECT_EQ(modest.tag(), "claimed");
  EXPECT_EQ(modest.levels[0].level, 32);
  EXPECT_TRUE(modest.levels[0].KeepsLevels());
  EXPECT_TRUE(modest.levels[0].runs.empty());
  EXPECT_DOUBLE_EQ(modest.levels[0].prediction_error, 0.5);
  // Half of the figure as its mean error leaves 35 ms under 60 ms by no certainty.
  EXPECT_LT(modest.levels[0].SloProbability(), 0.9);
  EXPECT_GT(modest.levels[0].SloProbability(), 0.5);
  // Memory, rate and first token were held against the devices.
  EXPECT_EQ(modest.claims.size(), 3u);
  EXPECT_EQ(modest.price.tag, "claimed");
  EXPECT_GT(modest.price.usd_per_hour, 0);
}

TEST(Claimed, ImpossibleFiguresPutACandidateOutWithTheReason) {
  const auto report = AdviseOn(MustParse(std::string(kModest) + kWild));
  ASSERT_TRUE(report) << report.error().message;
  const CandidateResult& wild = report->candidates[1];
  EXPECT_THAT(wild.impossible, HasSubstr("x the roofline"));
  EXPECT_TRUE(wild.levels.empty());
  EXPECT_FALSE(wild.feasible());
  EXPECT_EQ(ChooseTiers(*report).batch->candidates, std::vector<std::size_t>{0});
}

TEST(Claimed, AModelInLessMemoryThanItsWeightsTakeIsImpossible) {
  std::string text = kModest;
  text.replace(text.find("users: 32"), 9, "users: 32, memory: 22.4 GB");
  const auto report = AdviseOn(MustParse(text + kModest2));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->candidates[0].impossible, HasSubstr("do not fit"));
}

TEST(Claimed, WhatIsNotPublishedIsNotTakenAsKept) {
  std::string text = kModest;
  text.replace(text.find("tpot: {p90: 35ms}, "), std::string("tpot: {p90: 35ms}, ").size(), "");
  const auto report = AdviseOn(MustParse(text));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->candidates[0].feasible());
}

TEST(Claimed, WhatThePlanMustSayOfAClaim) {
  const auto said = [](const std::string& load, const std::string& claimed) -> std::string {
    const auto plan = ParsePlan(
        "name: leaflets\nload: {" + load +
            "}\ncandidates:\n  - name: leaflet\n    claimed: {model: deepseek-v3, device: h200,\n"
            "      devices: 8, precision: fp8, output_tokens_per_s: 900, source: leaflet" +
            claimed + "}\n",
        "plan.yaml", {});
    return plan ? "" : plan.error().message;
  };
  EXPECT_EQ(said("users: [32]", ", users: 32"), "");
  EXPECT_EQ(said("rate: [1/s]", ""), "");
  EXPECT_THAT(said("users: [32]", ""), HasSubstr("claimed.users: needed under load.users"));
  EXPECT_THAT(said("users: [32], dataset: chats.jsonl", ", users: 32"),
              AllOf(HasSubstr("claimed.input_tokens: needed under load.dataset"),
                    HasSubstr("claimed.output_tokens: needed under load.dataset")));
  EXPECT_EQ(said("users: [32], dataset: chats.jsonl",
                 ", users: 32, input_tokens: 900, output_tokens: 200"),
            "");
  EXPECT_THAT(said("users: [32]", ", users: 32, error: 0%"),
              HasSubstr("above 0 %: nobody's figures are exact"));
}

TEST(Claimed, AClaimMayBeOfOtherLengthsThanThePlans) {
  std::string text = kModest;
  text.replace(text.find("users: 32"), 9, "users: 32, output_tokens: 100, input_tokens: 1000");
  const auto report = AdviseOn(MustParse(text));
  ASSERT_TRUE(report) << report.error().message;
  const LevelResult& level = report->candidates[0].levels.at(0);
  EXPECT_DOUBLE_EQ(level.rates.requests_per_s, 9);
  EXPECT_DOUBLE_EQ(level.input_tokens_per_request, 1000);
  EXPECT_DOUBLE_EQ(level.output_tokens_per_request, 100);
}

TEST(Claimed, TheReportCautionsOfClaims) {
  auto report = AdviseOn(MustParse(kModest));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(ContentOf(*report, Words(Language::kEnglish)).cautions,
              Contains(HasSubstr("Some figures are a vendor's claim")));
}

TEST(Claimed, NamesOfTheCatalogueAreChecked) {
  std::string text = kModest;
  text.replace(text.find("h200"), 4, "h2000");
  const auto report = AdviseOn(MustParse(text));
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("did you mean 'h200'"));
}

}  // namespace
}  // namespace tare::advise
