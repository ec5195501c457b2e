#include "load/rate_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <functional>

#include "load/random.h"

namespace tare::load {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

ServiceLevels P(double quantile) {
  ServiceLevels levels;
  levels.percentiles.push_back({"ttft", quantile, 0.5});
  return levels;
}

SearchSpec Spec(double low, double high, Nanos budget = std::chrono::hours(3)) {
  SearchSpec spec;
  spec.low = low;
  spec.high = high;
  spec.budget = budget;
  return spec;
}

// A server of which is known with what probability a request meets the level at a rate.
struct SimulatedServer {
  std::function<double(double)> share;
  double needed = 0.9;
  std::uint64_t seed = 1;
  Nanos elapsed{0};
  int probes = 0;
  std::function<bool(const RateSearch::Probe&)> invalid = [](const auto&) { return false; };

  SearchAnswer Run(RateSearch& search) {
    Random random(seed);
    while (const std::optional<RateSearch::Probe> probe = search.Next(elapsed)) {
      ++probes;
      EXPECT_LT(probes, 200) << "the search does not end";
      if (probes >= 200) break;
      const Nanos overhead = seconds(2);
      elapsed += probe->length + overhead;
      if (invalid(*probe)) {
        search.ReportInvalid("client_cpu", overhead);
        continue;
      }
      const double p = share(probe->rate);
      const auto n = static_cast<int>(probe->rate * ToSeconds(probe->length));
      LevelShare seen;
      seen.name = "ttft";
      seen.needed = needed;
      seen.samples = n;
      for (int i = 0; i < n; ++i) seen.met += random.Uniform() < p ? 1 : 0;
      search.Report({seen}, overhead);
    }
    return search.Answer();
  }
};

// Meets the level with certainty far below `knee`, never far above; `steep` is how sharp it falls.
std::function<double(double)> Logistic(double knee, double steep) {
  return [=](double rate) { return 1 / (1 + std::pow(rate / knee, steep)); };
}

// Where a logistic share equals `needed`.
double BorderOf(double knee, double steep, double needed) {
  return knee * std::pow(1 / needed - 1, 1 / steep);
}

TEST(RateSearch, EnclosesTheBorderOfASteepCurve) {
  RateSearch search(Spec(1, 100), P(0.99));
  SimulatedServer server{Logistic(17, 200), 0.99};
  const SearchAnswer answer = server.Run(search);
  const double border = BorderOf(17, 200, 0.99);
  ASSERT_TRUE(answer.holds && answer.breaks) << answer.why;
  EXPECT_LE(*answer.holds, border);
  EXPECT_GE(*answer.breaks, border);
  EXPECT_LE(*answer.breaks / *answer.holds, 1.06);
  EXPECT_THAT(answer.why, HasSubstr("narrow"));
  for (const double end : {*answer.holds, *answer.breaks}) {
    EXPECT_GE(search.points().at(end).tries, 2) << "both ends are confirmed";
  }
}

// The interval must hold the true border in nearly every search, whatever the curve's shape.
TEST(RateSearch, CoversTheTrueBorderUnderNoise) {
  int searches = 0, covered = 0;
  double widest = 0;
  for (const double steep : {4.0, 15.0, 60.0}) {
    for (const double needed : {0.5, 0.9, 0.99}) {
      for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        const double knee = 3 + 0.37 * static_cast<double>(seed);
        RateSearch search(Spec(0.2, 200), P(needed));
        SimulatedServer server{Logistic(knee, steep), needed, seed};
        const SearchAnswer answer = server.Run(search);
        const double border = BorderOf(knee, steep, needed);
        ++searches;
        if (answer.holds.value_or(0) <= border && answer.breaks.value_or(1e9) >= border) ++covered;
        if (answer.holds && answer.breaks) {
          widest = std::max(widest, *answer.breaks / *answer.holds);
        }
      }
    }
  }
  EXPECT_GE(covered, searches * 95 / 100) << covered << " of " << searches;
  EXPECT_LT(widest, 4) << "noise must not make the answer useless";
}

TEST(RateSearch, SaysWhenBothEndsOfTheRangeAreOnOneSide) {
  RateSearch high(Spec(1, 10), P(0.9));
  SimulatedServer good{[](double) { return 1.0; }};
  const SearchAnswer holds = good.Run(high);
  EXPECT_EQ(holds.holds, 10.0);
  EXPECT_FALSE(holds.breaks);
  EXPECT_THAT(holds.why, HasSubstr("end higher"));

  RateSearch low(Spec(1, 10), P(0.9));
  SimulatedServer bad{[](double) { return 0.1; }};
  const SearchAnswer breaks = bad.Run(low);
  EXPECT_FALSE(breaks.holds);
  EXPECT_EQ(breaks.breaks, 1.0);
  EXPECT_EQ(bad.probes, 1) << "nothing above can hold";
}

TEST(RateSearch, ClimbsInsteadOfJumpingFarBeyondTheLimit) {
  RateSearch search(Spec(1, 10'000), P(0.9));
  double highest = 0;
  SimulatedServer server{[&](double rate) {
    highest = std::max(highest, rate);
    return rate < 7 ? 1.0 : 0.0;
  }};
  server.Run(search);
  EXPECT_LE(highest, 4 * 7);
}

TEST(RateSearch, AnInvalidProbeIsTriedAgainAndIsNoEvidence) {
  RateSearch search(Spec(1, 64), P(0.9));
  SimulatedServer server{[](double) { return 1.0; }};
  server.invalid = [](const RateSearch::Probe& p) { return p.attempt == 1; };
  const SearchAnswer answer = server.Run(search);
  EXPECT_EQ(answer.holds, 64.0);
  for (const auto& [rate, point] : search.points()) {
    EXPECT_EQ(point.invalid, 1);
    EXPECT_EQ(point.tries, 1);
  }
}

TEST(RateSearch, ARateThatCannotBeTestedCapsTheSearchWithoutBreaking) {
  RateSearch search(Spec(1, 100), P(0.9));
  SimulatedServer server{[](double) { return 1.0; }};
  server.invalid = [](const RateSearch::Probe& p) { return p.rate > 30; };
  const SearchAnswer answer = server.Run(search);
  ASSERT_TRUE(answer.holds);
  EXPECT_LE(*answer.holds, 30);
  EXPECT_GT(*answer.holds, 25);
  EXPECT_FALSE(answer.breaks);
  ASSERT_TRUE(answer.untested);
  EXPECT_GT(*answer.untested, 30);
  EXPECT_THAT(answer.why, HasSubstr("client"));
}

TEST(RateSearch, TheLowestRateUntestableIsNoAnswer) {
  RateSearch search(Spec(1, 100), P(0.9));
  SimulatedServer server{[](double) { return 1.0; }};
  server.invalid = [](const RateSearch::Probe&) { return true; };
  const SearchAnswer answer = server.Run(search);
  EXPECT_FALSE(answer.holds);
  EXPECT_FALSE(answer.breaks);
  EXPECT_EQ(server.probes, 2);
}

RC_GTEST_PROP(RateSearch, KeepsItsTimeAndItsOrder, ()) {
  const double needed = *rc::gen::element(0.5, 0.9, 0.95, 0.99);
  const double low = *rc::gen::inRange(1, 50) / 10.0;
  const double high = low * *rc::gen::inRange(2, 500);
  const double knee = low * *rc::gen::inRange(1, 1000) / 10.0;
  const auto steep = static_cast<double>(*rc::gen::inRange(2, 80));
  const Nanos budget = seconds(*rc::gen::inRange(20, 4000));
  RateSearch search(Spec(low, high, budget), P(needed));
  SimulatedServer server{Logistic(knee, steep), needed, *rc::gen::arbitrary<std::uint64_t>()};
  const SearchAnswer answer = server.Run(search);
  // The first probe is always made; after it no probe may end beyond the budget (2 s beyond the
  // first, whose overhead was not known).
  if (server.probes > 1) RC_ASSERT(server.elapsed <= budget);
  if (answer.holds && answer.breaks) RC_ASSERT(*answer.holds < *answer.breaks);
  if (answer.holds) RC_ASSERT(*answer.holds >= low * (1 - 1e-12) && *answer.holds <= high);
  RC_ASSERT(!answer.why.empty());
  for (const auto& [rate, point] : search.points()) {
    RC_ASSERT(rate >= low && rate <= high);
    RC_ASSERT(point.tries <= 5);
  }
}

TEST(RateSearch, ReadsItsRange) {
  SearchSpec spec;
  ASSERT_TRUE(ParseSearchRate("0.5:40", spec).has_value());
  EXPECT_DOUBLE_EQ(spec.low, 0.5);
  EXPECT_DOUBLE_EQ(spec.high, 40);
  ASSERT_TRUE(ParseSearchRate("30/min:2/s", spec).has_value());
  EXPECT_DOUBLE_EQ(spec.low, 0.5);
  for (const char* bad : {"", "5", "a:b", "1:2:3"}) {
    EXPECT_FALSE(ParseSearchRate(bad, spec).has_value()) << bad;
  }
  EXPECT_THAT(CheckSearch(Spec(1, 2), {}).error().message, HasSubstr("--slo"));
  EXPECT_FALSE(CheckSearch(Spec(2, 2), P(0.9)).has_value());
  EXPECT_FALSE(CheckSearch(Spec(0, 2), P(0.9)).has_value());
  EXPECT_TRUE(CheckSearch(Spec(1, 2), P(0.9)).has_value());
}

}  // namespace
}  // namespace tare::load
