#include "load/figures.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "load/compare.h"
#include "load/random.h"

namespace tare::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Nanos kStart = seconds(1000);

RequestRecord Answered(int at_ms, int wait_ms, int gap_ms, std::uint32_t tokens) {
  RequestRecord r;
  r.intended = kStart + milliseconds(at_ms);
  r.queued = r.sent = r.intended + milliseconds(1);
  r.first_token = r.sent + milliseconds(wait_ms);
  r.last_token = r.first_token + milliseconds(gap_ms) * (tokens - 1);
  r.end = r.last_token;
  r.chunks = r.counted_output = tokens;
  r.longest_gap = milliseconds(gap_ms);
  return r;
}

TEST(Figures, LatenciesFollowTheDefinitions) {
  const RequestRecord r = Answered(0, 100, 10, 11);
  const RequestLatencies l = LatenciesOf(r);
  EXPECT_DOUBLE_EQ(l.ttft, 0.100);
  EXPECT_DOUBLE_EQ(l.ttft_intended, 0.101);
  EXPECT_DOUBLE_EQ(l.e2e, 0.200);
  EXPECT_DOUBLE_EQ(l.tpot, 0.010);
  EXPECT_TRUE(std::isnan(LatenciesOf(Answered(0, 100, 10, 1)).tpot)) << "one token has no TPOT";
  RequestRecord told = r;
  told.told_usage = true;
  told.told_output = 21;  // chunks of about two tokens
  EXPECT_DOUBLE_EQ(LatenciesOf(told).tpot, 0.005);
}

TEST(Figures, GoodMeansAllLevelsAtOnce) {
  ServiceLevels levels;
  levels.ttft = 0.15;
  levels.tpot = 0.011;
  EXPECT_TRUE(IsGood(Answered(0, 100, 10, 11), levels));
  EXPECT_FALSE(IsGood(Answered(0, 160, 10, 11), levels));
  EXPECT_FALSE(IsGood(Answered(0, 100, 12, 11), levels));
  RequestRecord failed = Answered(0, 100, 10, 11);
  failed.error = RequestError::kReset;
  EXPECT_FALSE(IsGood(failed, levels)) << "failures are misses";
}

TEST(Figures, SummaryOfAKnownRun) {
  const Window window{kStart, kStart + seconds(1), kStart + seconds(11)};
  Recorder recorder(window.start, window.begin, window.end);
  for (int i = 0; i < 120; ++i) {  // ten a second, from second 0 to 12
    RequestRecord r = Answered(i * 100, 100, 10, 11);
    r.phase = r.intended < window.begin ? Phase::kWarmUp : Phase::kMeasured;
    if (r.intended >= window.end) continue;
    if (i == 50) r.error = RequestError::kHttpStatus, r.http_status = 503;
    const bool measured = r.phase == Phase::kMeasured;
    for (int k = 0; k < 11; ++k) {
      recorder.Chunk(r.first_token + milliseconds(10) * k, 1,
                     k == 0 ? Recorder::kFirstChunk : Nanos(milliseconds(10)), measured);
    }
    recorder.Ended(r);
  }
  ServiceLevels levels;
  levels.ttft = 1.0;
  const store::RunSummary s = Summarize(recorder, window, levels);
  EXPECT_EQ(s.total, 100u);
  EXPECT_EQ(s.ok, 99u);
  EXPECT_EQ(s.errors_by_kind.at("http_503"), 1u);
  EXPECT_DOUBLE_EQ(s.duration_s, 10);
  // Ends lie 0.201 s after their starts: as many flow in at one edge as flow out at the other.
  EXPECT_NEAR(s.requests_per_s, 9.9, 0.21);
  EXPECT_NEAR(s.output_tokens_per_s, 110, 2.5);
  EXPECT_DOUBLE_EQ(s.goodput_per_s, s.requests_per_s);
  EXPECT_NEAR(s.ttft.sent.p50, 0.1, 1e-9);
  EXPECT_NEAR(s.itl.sent.p50, 0.01, 1e-5);
  EXPECT_TRUE(std::isnan(s.ttft.sent.p95)) << "99 samples";
  EXPECT_NEAR(s.longest_gap_s, 0.01, 1e-9);
  EXPECT_EQ(s.stalls, 0u);
}

TEST(Figures, StallsAreGapsOfTenMedians) {
  const Window window{kStart, kStart, kStart + seconds(10)};
  Recorder recorder(window.start, window.begin, window.end);
  for (int i = 0; i < 100; ++i)
    recorder.Chunk(kStart, 1, milliseconds(i % 50 == 0 ? 200 : 10), true);
  EXPECT_EQ(Summarize(recorder, window, {}).stalls, 2u);
}

TEST(Figures, QuantilesInterpolate) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(SortedQuantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(SortedQuantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(SortedQuantile(values, 1), 4);
}

// An AR(1) series of coefficient rho is worth n (1 - rho) / (1 + rho) samples: 0.5 leaves a third.
std::vector<double> Autoregressive(double rho, std::size_t n, double mean, std::uint64_t seed) {
  Random random(seed);
  std::vector<double> series;
  double x = 0;
  for (std::size_t i = 0; i < n; ++i) {
    x = rho * x + std::sqrt(1 - rho * rho) * random.Normal();
    series.push_back(mean + x * mean * 0.1);
  }
  return series;
}

TEST(Figures, AutocorrelationCostsSamples) {
  constexpr std::size_t kMany = 20'000;
  EXPECT_NEAR(EffectiveSamples(Autoregressive(0, kMany, 1, 1)) / kMany, 1, 0.15);
  EXPECT_NEAR(EffectiveSamples(Autoregressive(0.5, kMany, 1, 2)) / kMany, 1.0 / 3, 0.05);
  const auto interval_of = [](double rho) {
    const auto figure = FigureOf(Autoregressive(rho, 2000, 1, 3));
    return figure.p50_interval.high - figure.p50_interval.low;
  };
  EXPECT_GT(interval_of(0.8), 2 * interval_of(0));
}

RC_GTEST_PROP(Figures, MergingRecordersIsOrderFree, ()) {
  const Window window{kStart, kStart, kStart + seconds(10)};
  Recorder one(window.start, window.begin, window.end);
  Recorder a = one, b = one;
  const auto gaps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 9000));
  for (std::size_t i = 0; i < gaps.size(); ++i) {
    const Nanos at = kStart + milliseconds(gaps[i]);
    one.Chunk(at, 1, milliseconds(gaps[i]), true);
    (i % 2 == 0 ? a : b).Chunk(at, 1, milliseconds(gaps[i]), true);
  }
  a.Merge(std::move(b));
  RC_ASSERT(a.gaps() == one.gaps());
  RC_ASSERT(a.window_tokens() == one.window_tokens());
}

// ----- comparison

store::RunRecord RunWith(const std::vector<double>& ttft) {
  store::RunRecord record;
  nlohmann::json column = ttft;
  record.series = {{"requests",
                    {{"ttft_s", column},
                     {"ok", std::vector<int>(ttft.size(), 1)},
                     {"measured", std::vector<int>(ttft.size(), 1)}}}};
  return record;
}

std::string VerdictOf(const store::RunRecord& a, const store::RunRecord& b,
                      const std::string& metric) {
  for (const Difference& d : Compare(a, b)) {
    if (d.metric == metric) return d.verdict;
  }
  return "absent";
}

TEST(Compare, SeesARealDifferenceAndClaimsNoOther) {
  const auto base = RunWith(Autoregressive(0.5, 2000, 1.0, 1));
  EXPECT_EQ(VerdictOf(base, RunWith(Autoregressive(0.5, 2000, 0.9, 2)), "ttft_mean_s"), "better");
  EXPECT_EQ(VerdictOf(base, RunWith(Autoregressive(0.5, 2000, 1.1, 2)), "ttft_p50_s"), "worse");
  EXPECT_EQ(VerdictOf(base, RunWith(Autoregressive(0.5, 20, 1.0, 3)), "ttft_p99_s"),
            "too few samples");
}

TEST(Compare, IsRightAboutAsOftenAsItSays) {
  // Equal runs: a 95 % interval may leave out 1 in about one of twenty.
  int claims = 0;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const auto a = RunWith(Autoregressive(0.5, 400, 1, 2 * i + 10));
    const auto b = RunWith(Autoregressive(0.5, 400, 1, 2 * i + 11));
    claims += VerdictOf(a, b, "ttft_mean_s") == "cannot tell" ? 0 : 1;
  }
  EXPECT_LE(claims, 6);
}

}  // namespace
}  // namespace tare::load
