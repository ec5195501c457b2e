#include "load/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "load/pacing_server.h"

namespace tare::load {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

LoadOptions Options() {
  LoadOptions options;
  options.requests = 40;
  options.workload.input_tokens = 8;
  options.workload.output_tokens = 4;
  options.workload.seed = 3;
  return options;
}

TEST(Sweep, EveryVariantAtEveryNumberOfUsers) {
  PacingOptions pacing;
  pacing.gap = std::chrono::microseconds(200);
  const auto fast = PacingServer::Start(pacing).value();
  pacing.gap = std::chrono::milliseconds(10);
  const auto slow = PacingServer::Start(pacing).value();
  int kept = 0;
  SweepHooks hooks;
  hooks.keep = [&](const store::RunRecord&) -> Result<std::string> {
    return "id-" + std::to_string(++kept);
  };
  const SweepResult result =
      RunSweep(Options(), {1, 4}, {{"slow", slow->url(), "", {}}, {"fast", fast->url(), "", {}}},
               hooks)
          .value();
  ASSERT_EQ(result.points.size(), 4u);
  EXPECT_EQ(kept, 4);
  EXPECT_EQ(result.points[0].users, 1);
  EXPECT_EQ(result.points[3].users, 4);
  EXPECT_EQ(result.points[3].record.id, "id-4");
  EXPECT_TRUE(result.points[0].against.empty());
  ASSERT_FALSE(result.points[2].against.empty());
  std::vector<std::string> judged;
  for (const SweepPoint::Against& a : result.points[3].against) {
    judged.push_back(a.metric);
    if (a.metric == "tpot_p50_s") {
      EXPECT_NE(a.verdict, "worse");
    }
  }
  EXPECT_THAT(judged, ::testing::UnorderedElementsAre("output_tokens_per_s", "ttft_p50_s",
                                                      "tpot_p50_s", "e2e_p99_s"));
  EXPECT_EQ(result.points[2].record.name, "fast-users-1");

  const nlohmann::json document = SweepJson(result);
  EXPECT_EQ(document["schema"], "tare.sweep/1");
  EXPECT_EQ(document["points"].size(), 4u);
  EXPECT_EQ(document["runs"].size(), 4u);
  EXPECT_FALSE(document["runs"][0].contains("series"));
  EXPECT_THAT(SweepTable(result), HasSubstr("fast"));
  const std::string page = SweepPage(result);
  EXPECT_THAT(page, HasSubstr("Pareto"));
  EXPECT_THAT(page, HasSubstr("Against slow"));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

TEST(Sweep, AServerThatDoesNotStartIsNamedAndTheOthersGoOn) {
  const auto server = PacingServer::Start({}).value();
  const SweepVariant broken{"broken", "", "", {"false"}};
  const SweepResult result =
      RunSweep(Options(), {2}, {broken, {"good", server->url(), "", {}}}, {}).value();
  EXPECT_EQ(result.points.size(), 1u);
  ASSERT_EQ(result.failed.size(), 1u);
  EXPECT_THAT(result.failed[0], HasSubstr("broken: the server ended before"));
  EXPECT_FALSE(result.valid());
  EXPECT_THAT(SweepTable(result), HasSubstr("no figures for broken"));
  EXPECT_FALSE(RunSweep(Options(), {2}, {broken}, {}).has_value());
}

TEST(Sweep, ReadsItsWords) {
  EXPECT_EQ(ParseUsers("1, 2,8").value(), (std::vector<int>{1, 2, 8}));
  for (const char* bad : {"", "0", "1,,2", "x", "-1"}) EXPECT_FALSE(ParseUsers(bad)) << bad;
  EXPECT_EQ(ParseVariant("a=http://h:1").value().label, "a");
  EXPECT_EQ(ParseVariant("a=http://h:1").value().url, "http://h:1");
  EXPECT_EQ(ParseVariant("http://h:1/v1?x=y").value().label, "h:1/v1?x=y");
  EXPECT_FALSE(ParseVariant("a=ftp://h").has_value());
  EXPECT_FALSE(ParseVariant("=http://h").has_value());
  const auto served = ServeVariants("tare", "m.gguf", "bf16, int8").value();
  ASSERT_EQ(served.size(), 2u);
  EXPECT_EQ(served[1].label, "int8");
  EXPECT_EQ(served[1].command.back(), "int8");
  EXPECT_FALSE(ServeVariants("tare", "m", "bf16,,int8").has_value());
}

// By definition: a valid point is on the front when no valid point is at least as good in both and
// better in one.
RC_GTEST_PROP(Sweep, TheFrontIsWhatNothingBeats, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 12);
  std::vector<SweepPoint> points(count);
  for (SweepPoint& point : points) {
    point.per_user = *rc::gen::inRange(0, 6);
    point.record.summary.output_tokens_per_s = *rc::gen::inRange(0, 6);
    point.record.valid = *rc::gen::weightedElement<bool>({{4, true}, {1, false}});
  }
  MarkFront(points);
  const auto total = [](const SweepPoint& p) { return p.record.summary.output_tokens_per_s; };
  for (const SweepPoint& a : points) {
    bool beaten = !a.record.valid;
    for (const SweepPoint& b : points) {
      if (!b.record.valid) continue;
      const bool as_good = b.per_user >= a.per_user && total(b) >= total(a);
      const bool better = b.per_user > a.per_user || total(b) > total(a);
      beaten = beaten || (as_good && better);
    }
    RC_ASSERT(a.on_front == !beaten);
  }
}

}  // namespace
}  // namespace tare::load
