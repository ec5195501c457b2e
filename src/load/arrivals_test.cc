#include "load/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <vector>

namespace tare::load {
namespace {

using ::testing::HasSubstr;
using Kind = ArrivalSpec::Kind;

ArrivalSpec Open(Kind kind, double rate, double cv = 1) {
  ArrivalSpec spec;
  spec.kind = kind;
  spec.rate = rate;
  spec.cv = cv;
  return spec;
}

std::vector<double> Times(const ArrivalSpec& spec, int n, std::uint64_t seed = 1) {
  ArrivalSchedule schedule(spec, seed);
  std::vector<double> times;
  for (int i = 0; i < n; ++i) times.push_back(ToSeconds(schedule.Next()));
  return times;
}

std::pair<double, double> MeanAndCvOfGaps(const std::vector<double>& times) {
  double sum = 0, squares = 0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    const double gap = times[i] - times[i - 1];
    sum += gap;
    squares += gap * gap;
  }
  const auto n = static_cast<double>(times.size() - 1);
  const double mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean) / mean};
}

int CountIn(const std::vector<double>& times, double from, double to) {
  int n = 0;
  for (const double t : times) n += t >= from && t < to ? 1 : 0;
  return n;
}

TEST(Arrivals, ConstantIsEvenFromZero) {
  const auto times = Times(Open(Kind::kConstant, 4), 5);
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_NEAR(times[i], static_cast<double>(i) * 0.25, 1e-9);
  }
}

TEST(Arrivals, PoissonAndGammaHaveTheirMeanAndVariation) {
  constexpr int kMany = 200'000;
  const auto [poisson_mean, poisson_cv] = MeanAndCvOfGaps(Times(Open(Kind::kPoisson, 50), kMany));
  EXPECT_NEAR(poisson_mean, 0.02, 0.0002);
  EXPECT_NEAR(poisson_cv, 1, 0.02);
  for (const double cv : {0.5, 3.0}) {
    const auto [mean, got] = MeanAndCvOfGaps(Times(Open(Kind::kGamma, 50, cv), kMany));
    EXPECT_NEAR(mean, 0.02, 0.02 * 0.03) << cv;
    EXPECT_NEAR(got, cv, 0.06 * cv);
  }
}

TEST(Arrivals, BurstsComeAfterAQuietPeriodAndMultiplyTheRate) {
  ArrivalSpec spec = Open(Kind::kConstant, 10);
  spec.burst_factor = 10;
  spec.burst_for = std::chrono::seconds(5);
  spec.burst_every = std::chrono::seconds(30);
  ASSERT_TRUE(CheckArrivals(spec).has_value());
  const auto times = Times(spec, 2000);
  EXPECT_NEAR(CountIn(times, 0, 30), 300, 1);
  EXPECT_NEAR(CountIn(times, 30, 35), 500, 1);
  EXPECT_NEAR(CountIn(times, 35, 60), 250, 1);
  EXPECT_NEAR(CountIn(times, 60, 65), 500, 1);
  EXPECT_EQ(RateAt(spec, std::chrono::seconds(31)), 100);
}

TEST(Arrivals, RampIsLinear) {
  ArrivalSpec spec = Open(Kind::kConstant, 10);
  spec.ramp_to = 30;
  spec.ramp_over = std::chrono::seconds(10);
  const auto times = Times(spec, 500);
  EXPECT_NEAR(CountIn(times, 0, 10), 200, 1);
  EXPECT_NEAR(CountIn(times, 0, 5), 75, 1);
  EXPECT_NEAR(CountIn(times, 10, 15), 150, 1);
}

RC_GTEST_PROP(Arrivals, NeverGoBackAndRepeatWithTheSeed, ()) {
  ArrivalSpec spec = Open(*rc::gen::element(Kind::kConstant, Kind::kPoisson, Kind::kGamma),
                          *rc::gen::inRange(1, 1000), *rc::gen::inRange(1, 10));
  if (*rc::gen::arbitrary<bool>()) {
    spec.burst_factor = *rc::gen::inRange(1, 20);
    spec.burst_for = std::chrono::seconds(1);
    spec.burst_every = std::chrono::seconds(*rc::gen::inRange(2, 5));
  }
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto times = Times(spec, 200, seed);
  RC_ASSERT(std::is_sorted(times.begin(), times.end()));
  RC_ASSERT(times == Times(spec, 200, seed));
}

TEST(Arrivals, ParsesItsNames) {
  ArrivalSpec spec;
  ASSERT_TRUE(ParseArrival("gamma:2.5", spec).has_value());
  EXPECT_EQ(spec.cv, 2.5);
  ASSERT_TRUE(ParseArrival("trace:a.csv", spec).has_value());
  EXPECT_EQ(spec.trace, "a.csv");
  EXPECT_THAT(ParseArrival("uniform", spec).error().message, HasSubstr("gamma:CV"));
  EXPECT_FALSE(ParseArrival("gamma:x", spec).has_value());
}

TEST(Arrivals, NamesWhatContradictsItself) {
  ArrivalSpec closed;
  closed.users = 0;
  EXPECT_THAT(CheckArrivals(closed).error().message, HasSubstr("--users 0"));
  EXPECT_FALSE(CheckArrivals(Open(Kind::kPoisson, 0)).has_value());
  EXPECT_FALSE(CheckArrivals(Open(Kind::kGamma, 5, 0)).has_value());
  ArrivalSpec burst = Open(Kind::kPoisson, 5);
  burst.burst_factor = 10;
  burst.burst_for = burst.burst_every = std::chrono::seconds(5);
  EXPECT_FALSE(CheckArrivals(burst).has_value());
}

}  // namespace
}  // namespace tare::load
