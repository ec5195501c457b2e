#include "load/levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tare::load {
namespace {

using nlohmann::json;

TEST(Levels, ReadsLimitsPerRequestAndPercentiles) {
  ServiceLevels levels;
  ASSERT_TRUE(ParseLevels("ttft=500ms, tpot_p50=50ms,e2e_p99.9=4s", levels).has_value());
  EXPECT_EQ(levels.ttft, 0.5);
  EXPECT_FALSE(levels.tpot);
  ASSERT_EQ(levels.percentiles.size(), 2u);
  EXPECT_EQ(levels.percentiles[0].metric, "tpot");
  EXPECT_DOUBLE_EQ(levels.percentiles[0].quantile, 0.5);
  EXPECT_DOUBLE_EQ(levels.percentiles[1].quantile, 0.999);
  EXPECT_DOUBLE_EQ(levels.percentiles[1].seconds, 4);
  EXPECT_EQ(Describe(levels), (json{{"ttft_s", 0.5}, {"tpot_p50_s", 0.05}, {"e2e_p99.9_s", 4.0}}));
  for (const char* bad : {"ttft", "ttft=5", "foo=5ms", "ttft_p0=5ms", "ttft_p100=5ms", "ttft_p=1s",
                          "ttft_q99=5ms", "ttft=0", ",", "ttft_p99=-5ms"}) {
    ServiceLevels none;
    EXPECT_FALSE(ParseLevels(bad, none).has_value()) << bad;
  }
}

// Wilson bounds worked out by hand: 9 of 10 at z = 1.96 is 0.5958 … 0.9821.
TEST(Levels, BoundsAreWilsons) {
  LevelShare share{"ttft_p90", 0.9, 9, 10};
  EXPECT_NEAR(share.low(), 0.5958, 1e-4);
  EXPECT_NEAR(share.high(), 0.9821, 1e-4);
  EXPECT_EQ(share.verdict(), LevelVerdict::kUnclear);
  EXPECT_EQ((LevelShare{"", 0.99, 0, 0}).verdict(), LevelVerdict::kUnclear);
  EXPECT_EQ((LevelShare{"", 0.5, 90, 100}).verdict(), LevelVerdict::kHolds);
  EXPECT_EQ((LevelShare{"", 0.99, 90, 100}).verdict(), LevelVerdict::kBreaks);
}

RC_GTEST_PROP(Levels, LeastSamplesAreJustEnough, ()) {
  const double needed = *rc::gen::inRange(100, 999) / 1000.0;
  const double n = LeastSamplesFor(needed);
  RC_ASSERT((LevelShare{"", needed, n * 1.0001, n * 1.0001}).verdict() == LevelVerdict::kHolds);
  RC_ASSERT((LevelShare{"", needed, n * 0.999, n * 0.999}).verdict() != LevelVerdict::kHolds);
}

store::RunRecord Record(const std::vector<double>& ttft, const std::vector<int>& ok) {
  store::RunRecord record;
  json good = json::array();
  for (std::size_t i = 0; i < ttft.size(); ++i)
    good.push_back(ok[i] == 1 && ttft[i] <= 0.5 ? 1 : 0);
  record.series["requests"] = {{"ttft_intended_s", ttft},
                               {"ok", ok},
                               {"good", good},
                               {"measured", std::vector<int>(ttft.size(), 1)}};
  return record;
}

TEST(Levels, FailuresAreMisses) {
  std::vector<double> ttft(1000, 0.1);
  std::vector<int> ok(1000, 1);
  for (std::size_t i = 0; i < ok.size(); i += 50) ok[i] = 0;  // 2 % failed, fast ones the rest
  ServiceLevels levels;
  ASSERT_TRUE(ParseLevels("ttft=500ms,ttft_p99=500ms,ttft_p90=500ms", levels).has_value());
  const std::vector<LevelShare> shares = SharesOf(Record(ttft, ok), levels);
  ASSERT_EQ(shares.size(), 3u);
  EXPECT_EQ(shares[0].name, "good");
  for (const LevelShare& share : shares) EXPECT_NEAR(share.share(), 0.98, 1e-9);
  EXPECT_EQ(shares[1].verdict(), LevelVerdict::kBreaks);
  EXPECT_EQ(shares[2].verdict(), LevelVerdict::kHolds);
  EXPECT_EQ(Together(shares), LevelVerdict::kBreaks);
}

TEST(Levels, RequestsThatAreLateTogetherCountForLess) {
  std::vector<double> ttft(1000, 0.1);
  for (std::size_t i = 400; i < 500; ++i) ttft[i] = 2;  // one long stall
  ServiceLevels levels;
  ASSERT_TRUE(ParseLevels("ttft_p90=500ms", levels).has_value());
  const LevelShare share = SharesOf(Record(ttft, std::vector<int>(1000, 1)), levels).at(0);
  EXPECT_LT(share.samples, 100);
  EXPECT_NEAR(share.share(), 0.9, 1e-9);
}

TEST(Levels, WarmUpDoesNotCount) {
  store::RunRecord record = Record({0.1, 9}, {1, 1});
  record.series["requests"]["measured"] = {1, 0};
  ServiceLevels levels;
  ASSERT_TRUE(ParseLevels("ttft_p90=500ms", levels).has_value());
  EXPECT_DOUBLE_EQ(SharesOf(record, levels).at(0).share(), 1);
}

}  // namespace
}  // namespace tare::load
