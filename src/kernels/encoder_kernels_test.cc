#include "kernels/encoder_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels/per_isa_test.h"
#include "kernels/test_data.h"

namespace tare::kernels {
namespace {

std::size_t Z(std::int64_t value) { return static_cast<std::size_t>(value); }

class EncoderPerIsa : public PerIsaTest {};

TEST_P(EncoderPerIsa, LayerNormFollowsItsFormulaWithAndWithoutResidual) {
  for (const std::int64_t cols : {384, 33, 1}) {
    const std::int64_t rows = 40;
    const auto x = RandomFloats(Z(rows * cols), 1), delta = RandomFloats(Z(rows * cols), 2);
    const auto weight = RandomFloats(Z(cols), 3), bias = RandomFloats(Z(cols), 4);
    const auto delta_bias = RandomFloats(Z(cols), 5);
    for (const bool with_delta : {false, true}) {
      std::vector<float> out = x;  // in place, as the encoder does it
      LayerNorm(out.data(), with_delta ? delta.data() : nullptr,
                with_delta ? delta_bias.data() : nullptr, weight.data(), bias.data(), 1e-5f, rows,
                cols, out.data(), pool_);
      for (std::int64_t row = 0; row < rows; ++row) {
        std::vector<double> v;
        for (std::int64_t c = 0; c < cols; ++c) {
          const std::size_t at = Z(row * cols + c);
          v.push_back(x[at] + (with_delta ? double{delta[at]} + delta_bias[Z(c)] : 0.0));
        }
        const double mean = std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(cols);
        double variance = 0;
        for (const double value : v) variance += (value - mean) * (value - mean);
        const double inverse = 1.0 / std::sqrt(variance / static_cast<double>(cols) + 1e-5);
        for (std::int64_t c = 0; c < cols; ++c) {
          const double expected = (v[Z(c)] - mean) * inverse * weight[Z(c)] + bias[Z(c)];
          ASSERT_NEAR(out[Z(row * cols + c)], expected, 4e-6) << cols << ' ' << row << ' ' << c;
        }
      }
    }
  }
}

TEST_P(EncoderPerIsa, GeluIsTheErrorFunctionsFormula) {
  const std::int64_t rows = 3, cols = 1537;
  auto x = RandomFloats(Z(rows * cols), 5, 4.0f);
  x[0] = 200.0f;
  x[1] = -200.0f;
  x[2] = 0.0f;
  const auto before = x;
  const auto bias = RandomFloats(Z(cols), 6);
  BiasGelu(x.data(), bias.data(), rows, cols, pool_);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = before[i] + bias[i % Z(cols)];
    const double expected = 0.5 * v * std::erfc(-v / std::sqrt(2.0));
    ASSERT_NEAR(x[i], expected, 4e-7 * std::max(1.0, std::fabs(v))) << v;
  }
}

TEST_P(EncoderPerIsa, AttentionSeesTheWholeSequenceAndNothingElse) {
  struct Shape {
    int heads, dim;
  };
  for (const auto [heads, dim] : {Shape{3, 32}, Shape{2, 20}, Shape{1, 64}}) {
    const std::vector<int> lengths = {1, 17, 40, 0, 7};
    const std::int64_t hidden = std::int64_t{heads} * dim;
    const std::int64_t rows = std::accumulate(lengths.begin(), lengths.end(), 0);
    const auto qkv = RandomFloats(Z(rows * 3 * hidden), 7);
    const auto bias = RandomFloats(Z(3 * hidden), 8);
    const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
    std::vector<float> out(Z(rows * hidden));
    AttendBothWays(qkv.data(), bias.data(), heads, dim, scale, lengths, out.data(), pool_);
    const auto value = [&](std::int64_t row, int part, int head, int d) {
      const std::int64_t column = part * hidden + head * dim + d;
      return double{qkv[Z(row * 3 * hidden + column)]} + bias[Z(column)];
    };
    std::int64_t first = 0;
    for (const int length : lengths) {
      for (int head = 0; head < heads; ++head) {
        for (std::int64_t row = first; row < first + length; ++row) {
          std::vector<double> p;
          for (std::int64_t t = first; t < first + length; ++t) {
            double dot = 0;
            for (int d = 0; d < dim; ++d) dot += value(row, 0, head, d) * value(t, 1, head, d);
            p.push_back(std::exp(dot * double{scale}));
          }
          const double total = std::accumulate(p.begin(), p.end(), 0.0);
          for (int d = 0; d < dim; ++d) {
            double expected = 0;
            for (int t = 0; t < length; ++t) expected += p[Z(t)] * value(first + t, 2, head, d);
            ASSERT_NEAR(out[Z(row * hidden + head * dim + d)], expected / total, 1e-5);
          }
        }
      }
      first += length;
    }
  }
}

TEST_P(EncoderPerIsa, ASequenceHasTheSameBitsAloneAndAmongOthers) {
  const int heads = 2, dim = 24;
  const std::vector<int> lengths = {5, 19, 11};
  const std::size_t hidden = heads * dim, rows = 35;
  const auto qkv = RandomFloats(rows * 3 * hidden, 9);
  const auto bias = RandomFloats(3 * hidden, 10);
  std::vector<float> together(rows * hidden), alone(rows * hidden);
  AttendBothWays(qkv.data(), bias.data(), heads, dim, 0.2f, lengths, together.data(), pool_);
  std::size_t first = 0;
  for (const int length : lengths) {
    AttendBothWays(qkv.data() + first * 3 * hidden, bias.data(), heads, dim, 0.2f, {&length, 1},
                   alone.data() + first * hidden, pool_);
    first += Z(length);
  }
  EXPECT_EQ(together, alone);
}

INSTANTIATE_TEST_SUITE_P(Isa, EncoderPerIsa, kEveryIsa, NameOfIsa);

}  // namespace
}  // namespace tare::kernels
