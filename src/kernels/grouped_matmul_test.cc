#include "kernels/grouped_matmul.h"

#include <gtest/gtest.h>

#include "kernels/per_isa_test.h"
#include "kernels/test_data.h"

namespace tare::kernels {
namespace {

class GroupedPerIsa : public PerIsaTest {};

// Groups of no, one, few and many rows over matrices of two heights: every bit as MatMul gives it.
TEST_P(GroupedPerIsa, GivesTheBitsOfMatMul) {
  constexpr std::int64_t kCols = 96;
  const std::int64_t heights[] = {70, 33, 70, 160, 48};
  const std::int64_t rows[] = {1, 0, 37, 5, 16};
  for (const WeightType type :
       {WeightType::kF32, WeightType::kBf16, WeightType::kInt8, WeightType::kInt4}) {
    std::vector<PackedMatrix> weights;
    std::vector<std::vector<float>> inputs, outputs, expected;
    std::vector<MatMulGroup> groups;
    for (std::size_t g = 0; g < std::size(rows); ++g) {
      const auto seed = static_cast<std::uint32_t>(g);
      const StoredMatrix stored = RandomStored(StoredType::kF32, heights[g], kCols, seed + 10);
      weights.push_back(PackedMatrix::Pack(type, stored.view, pool_).value());
      inputs.push_back(RandomFloats(static_cast<std::size_t>(rows[g] * kCols), seed));
      const auto size = static_cast<std::size_t>(rows[g] * heights[g]);
      outputs.emplace_back(size, -1e9f);
      expected.emplace_back(size, 0.0f);
      Activations input;
      input.Set(inputs[g].data(), rows[g], kCols);
      MatMul(weights[g], input, expected[g].data(), 0, pool_);
    }
    for (std::size_t g = 0; g < std::size(rows); ++g) {
      groups.push_back({&weights[g], rows[g], outputs[g].data(), 0});
    }
    GroupedMatMul grouped;
    for (const bool makes_rows : {false, true}) {
      grouped.Run(
          groups,
          [&](std::size_t group, std::int64_t row, float* scratch) {
            const float* at = inputs[group].data() + row * kCols;
            if (!makes_rows) return at;
            std::copy_n(at, kCols, scratch);
            return static_cast<const float*>(scratch);
          },
          pool_);
      for (std::size_t g = 0; g < std::size(rows); ++g) {
        EXPECT_EQ(outputs[g], expected[g]) << ToString(type) << " group " << g;
        std::fill(outputs[g].begin(), outputs[g].end(), -1e9f);
      }
    }
  }
}

TEST_P(GroupedPerIsa, WritesWithAStrideAndNothingBeside) {
  const StoredMatrix stored = RandomStored(StoredType::kF32, 20, 32, 1);
  const auto weights = PackedMatrix::Pack(WeightType::kBf16, stored.view, pool_).value();
  const auto x = RandomFloats(3 * 32, 2);
  std::vector<float> y(3 * 25, 7.0f);
  const MatMulGroup group{&weights, 3, y.data(), 25};
  GroupedMatMul grouped;
  grouped.Run(
      {&group, 1}, [&](auto, auto row, auto) { return x.data() + row * 32; }, pool_);
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t i = 20; i < 25; ++i) EXPECT_EQ(y[row * 25 + i], 7.0f);
    EXPECT_NE(y[row * 25 + 19], 7.0f);
  }
}

TEST_P(GroupedPerIsa, NothingToDoIsNoWork) {
  GroupedMatMul grouped;
  grouped.Run({}, nullptr, pool_);
  const MatMulGroup empty{};
  grouped.Run({&empty, 1}, nullptr, pool_);
}

INSTANTIATE_TEST_SUITE_P(Isa, GroupedPerIsa, kEveryIsa, NameOfIsa);

}  // namespace
}  // namespace tare::kernels
