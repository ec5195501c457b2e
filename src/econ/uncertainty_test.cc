#include "econ/uncertainty.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "econ/counter_random.h"

namespace tare::econ {
namespace {

// Known answers published with the generator (Random123, kat_vectors).
TEST(CounterRandom, KnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Tables: 1.959963985 at 97.5 %, 2.326347874 at 99 %, 4.753424309 at 1 - 1e-6.
TEST(Quantiles, Normal) {
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963985, 5e-9);
  EXPECT_NEAR(NormalQuantile(0.99), 2.326347874, 5e-9);
  EXPECT_NEAR(NormalQuantile(1e-6), -4.753424309, 1e-8);
  EXPECT_NEAR(NormalQuantile(0.5), 0, 1e-12);
}

// Triangular 0, 1, 4: the mode is at u = 1/4; F(2) = 1 - (4-2)^2 / (4 * 3) = 2/3.
TEST(Quantiles, TriangularUniformLogNormal) {
  const Distribution triangular{Shape::kTriangular, 0, 1, 4};
  EXPECT_NEAR(Quantile(triangular, 0.25), 1, 1e-12);
  EXPECT_NEAR(Quantile(triangular, 2 / 3.0), 2, 1e-12);
  EXPECT_NEAR(Quantile({Shape::kUniform, 2, 6, 0}, 0.25), 3, 1e-12);
  EXPECT_NEAR(Quantile({Shape::kLogNormal, 10, 0.5, 0}, 0.5), 10, 1e-9);
  EXPECT_NEAR(Quantile({Shape::kLogNormal, 10, 0.5, 0}, 0.975), 10 * std::exp(0.9799819925), 1e-6);
  EXPECT_NEAR(Quantile({Shape::kNormal, 5, 2, 0}, 0.975), 5 + 2 * 1.959963985, 1e-8);
}

std::vector<UncertainInput> TwoInputs() {
  return {{"x", 10, {Shape::kNormal, 10, 2, 0}, "", ""},
          {"y", 5, {Shape::kUniform, 0, 10, 0}, "", ""},
          {"z", 7, {}, "", ""}};
}
const Model kSumAndTwice = [](std::span<const double> in, std::span<double> out) {
  out[0] = in[0] + in[1] + in[2];
  out[1] = 2 * in[0] + in[2];
};

// Sum: mean 22, deviation sqrt(4 + 100/12) = 3.512. a - b = y - x: mean -5, so a is lower more
// often than not.
TEST(MonteCarlo, MomentsAndComparison) {
  const MonteCarloResult result = MonteCarlo(kSumAndTwice, TwoInputs(), 2, 200'000, 7, nullptr);
  EXPECT_NEAR(result.options[0].mean, 22, 0.03);
  EXPECT_NEAR(result.options[0].deviation, 3.512, 0.02);
  EXPECT_NEAR(result.options[1].p10, 27 - 4 * 1.2815516, 0.05);
  EXPECT_NEAR(result.options[1].p90, 27 + 4 * 1.2815516, 0.05);
  EXPECT_NEAR(result.p_lower[0][1] + result.p_lower[1][0], 1, 1e-9);
  EXPECT_GT(result.p_lower[0][1], 0.9);
  EXPECT_NEAR(result.p_lowest[0], result.p_lower[0][1], 1e-9);
}

TEST(MonteCarlo, SameOnAnyNumberOfThreads) {
  ThreadPool two(2);
  ThreadPool five(5);
  const MonteCarloResult one = MonteCarlo(kSumAndTwice, TwoInputs(), 2, 50'000, 11, nullptr);
  for (ThreadPool* pool : {&two, &five}) {
    const MonteCarloResult many = MonteCarlo(kSumAndTwice, TwoInputs(), 2, 50'000, 11, pool);
    for (std::size_t option = 0; option < 2; ++option) {
      EXPECT_EQ(one.options[option].mean, many.options[option].mean);
      EXPECT_EQ(one.options[option].deviation, many.options[option].deviation);
      EXPECT_EQ(one.options[option].p90, many.options[option].p90);
      EXPECT_EQ(one.options[option].histogram, many.options[option].histogram);
    }
    EXPECT_EQ(one.p_lower, many.p_lower);
  }
  EXPECT_NE(one.options[0].mean,
            MonteCarlo(kSumAndTwice, TwoInputs(), 2, 50'000, 12, nullptr).options[0].mean);
}

// y spans 1..9 (swing 8); x spans 10 +- 2 * 1.28155 (swing 5.126).
TEST(Tornado, WidestFirst) {
  const auto bars = Tornado(kSumAndTwice, TwoInputs(), 2, 0);
  ASSERT_EQ(bars.size(), 2u);
  EXPECT_EQ(bars[0].input, 1u);
  EXPECT_NEAR(bars[0].swing(), 8, 1e-9);
  EXPECT_NEAR(bars[1].swing(), 5.1262, 1e-4);
}

TEST(Sensitivity, TwoWayCells) {
  const SensitivityMatrix matrix = TwoWay(kSumAndTwice, TwoInputs(), 2, 0, 0, 1, 3);
  ASSERT_EQ(matrix.cells.size(), 3u);
  EXPECT_NEAR(matrix.cells[1][1], 22, 1e-9);
  EXPECT_NEAR(matrix.cells[0][2], (10 - 2.5631031) + 9 + 7, 1e-6);
}

}  // namespace
}  // namespace tare::econ
