#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/per_isa_test.h"
#include "kernels/test_data.h"

namespace tare::kernels {
namespace {

class ElementwisePerIsa : public PerIsaTest {};

TEST_P(ElementwisePerIsa, RmsNormFollowsItsFormulaAndKeepsTheResidual) {
  for (const std::int64_t cols : {576, 33, 1}) {
    const std::int64_t rows = 40;
    const auto size = static_cast<std::size_t>(rows * cols);
    const auto before = RandomFloats(size, 1), delta = RandomFloats(size, 2);
    const auto weight = RandomFloats(static_cast<std::size_t>(cols), 3);
    for (const bool with_delta : {false, true}) {
      auto x = before;
      std::vector<float> out(size);
      RmsNorm(x.data(), with_delta ? delta.data() : nullptr, weight.data(), 1e-5f, rows, cols,
              out.data(), pool_);
      for (std::int64_t row = 0; row < rows; ++row) {
        double squares = 0;
        for (std::int64_t c = 0; c < cols; ++c) {
          const auto at = static_cast<std::size_t>(row * cols + c);
          ASSERT_EQ(x[at], with_delta ? before[at] + delta[at] : before[at]);
          squares += double{x[at]} * x[at];
        }
        const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
        for (std::int64_t c = 0; c < cols; ++c) {
          const auto at = static_cast<std::size_t>(row * cols + c);
          const double expected = x[at] * inverse * weight[static_cast<std::size_t>(c)];
          ASSERT_NEAR(out[at], expected, std::fabs(expected) * 2e-6);
        }
      }
    }
  }
}

TEST_P(ElementwisePerIsa, SiluMultiplyReadsTwoStridedHalves) {
  const std::int64_t rows = 9, cols = 1537;
  auto both = RandomFloats(static_cast<std::size_t>(rows * 2 * cols), 5, 4.0f);
  both[0] = 200.0f;
  both[1] = -200.0f;
  both[2] = 0.0f;
  std::vector<float> out(static_cast<std::size_t>(rows * cols));
  SiluMultiply(both.data(), both.data() + cols, 2 * cols, rows, cols, out.data(), pool_);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const double gate = both[static_cast<std::size_t>(row * 2 * cols + c)];
      const double up = both[static_cast<std::size_t>(row * 2 * cols + cols + c)];
      const double expected = gate / (1.0 + std::exp(-gate)) * up;
      ASSERT_NEAR(out[static_cast<std::size_t>(row * cols + c)], expected,
                  std::fabs(expected) * 1e-6 + 1e-30);
    }
  }
}

TEST_P(ElementwisePerIsa, RopeRotatesPairsByPositionTimesFrequency) {
  const int heads = 3, head_dim = 64, frequencies = 24;  // 48 of 64 dimensions are rotated
  const std::vector<int> positions = {0, 1, 77, 131071};
  std::vector<float> frequency;
  for (int i = 0; i < frequencies; ++i) {
    frequency.push_back(static_cast<float>(std::pow(10000.0, -2.0 * i / 48)));
  }
  std::vector<float> angles(positions.size() * frequencies * 2);
  RopeAngles(positions, frequency, 1.0f, angles);
  const std::int64_t stride = heads * head_dim + 8;
  for (const RopePairs pairs : {RopePairs::kNeighbours, RopePairs::kHalves}) {
    const auto before = RandomFloats(positions.size() * static_cast<std::size_t>(stride), 8);
    auto x = before;
    ApplyRope(x.data(), stride, static_cast<std::int64_t>(positions.size()), heads, head_dim,
              angles, frequencies, pairs, pool_);
    std::vector<double> expected(before.begin(), before.end());
    for (std::size_t row = 0; row < positions.size(); ++row) {
      for (int head = 0; head < heads; ++head) {
        for (int i = 0; i < frequencies; ++i) {
          const std::size_t base =
              row * static_cast<std::size_t>(stride) + static_cast<std::size_t>(head * head_dim);
          const bool near = pairs == RopePairs::kNeighbours;
          const std::size_t a = base + static_cast<std::size_t>(near ? 2 * i : i);
          const std::size_t b = base + static_cast<std::size_t>(near ? 2 * i + 1 : i + frequencies);
          const double angle = double{frequency[static_cast<std::size_t>(i)]} * positions[row];
          expected[a] = before[a] * std::cos(angle) - before[b] * std::sin(angle);
          expected[b] = before[a] * std::sin(angle) + before[b] * std::cos(angle);
        }
      }
    }
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], expected[i], 2e-6) << i;
  }
}

TEST_P(ElementwisePerIsa, WeightedSumGathersRowsInOrder) {
  for (const int count : {1, 4, 20}) {
    const std::int64_t rows = 5, cols = 131, stored = 30;
    const auto y = RandomFloats(static_cast<std::size_t>(stored * cols), 8);
    const auto total = static_cast<std::size_t>(rows * count);
    const auto weights = RandomFloats(total, 9);
    std::vector<std::int32_t> places;
    for (std::size_t i = 0; i < total; ++i) {
      places.push_back(static_cast<std::int32_t>(i * 7 % static_cast<std::size_t>(stored)));
    }
    for (const bool add : {false, true}) {
      std::vector<float> out(static_cast<std::size_t>(rows * cols), add ? 0.5f : -1e9f);
      WeightedSum(y.data(), cols, places, weights, count, add, out.data(), pool_);
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t c = 0; c < cols; ++c) {
          double expected = add ? 0.5 : 0.0;
          for (int j = 0; j < count; ++j) {
            const auto at = static_cast<std::size_t>(row * count + j);
            expected += double{weights[at]} * y[static_cast<std::size_t>(places[at] * cols + c)];
          }
          ASSERT_NEAR(out[static_cast<std::size_t>(row * cols + c)], expected, 1e-5);
        }
      }
    }
  }
}

TEST_P(ElementwisePerIsa, AddToAddsEverything) {
  auto x = RandomFloats(20000, 1);
  const auto before = x, delta = RandomFloats(20000, 2);
  AddTo(x.data(), delta.data(), 20000, pool_);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], before[i] + delta[i]);
}

INSTANTIATE_TEST_SUITE_P(Isa, ElementwisePerIsa, kEveryIsa, NameOfIsa);

}  // namespace
}  // namespace tare::kernels
