#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "kernels/matmul_impl.h"
#include "kernels/per_isa_test.h"
#include "kernels/test_data.h"

namespace tare::kernels {
namespace {

constexpr WeightType kAllTypes[] = {WeightType::kF32, WeightType::kBf16, WeightType::kInt8,
                                    WeightType::kInt4};
constexpr StoredType kAllStored[] = {StoredType::kF32,  StoredType::kF16,  StoredType::kBf16,
                                     StoredType::kQ8_0, StoredType::kQ4_0, StoredType::kQ4_1,
                                     StoredType::kQ5_0, StoredType::kQ5_1, StoredType::kQ4_K,
                                     StoredType::kQ5_K, StoredType::kQ6_K, StoredType::kIq4Nl};

std::vector<float> Multiply(const PackedMatrix& w, const std::vector<float>& x, std::int64_t rows,
                            ThreadPool& pool) {
  std::vector<float> y(static_cast<std::size_t>(rows * w.rows()), -1e9f);
  Activations input;
  input.Set(x.data(), rows, w.cols());
  MatMul(w, input, y.data(), 0, pool);
  return y;
}

// Unpacks by multiplying with unit vectors: column k of W.
std::vector<float> Column(const PackedMatrix& w, std::int64_t k, ThreadPool& pool) {
  std::vector<float> unit(static_cast<std::size_t>(w.cols()), 0.0f);
  unit[static_cast<std::size_t>(k)] = 127.0f;  // exact in every activation form
  std::vector<float> y = Multiply(w, unit, 1, pool);
  for (float& value : y) value /= 127.0f;
  return y;
}

// How much the weights of a row err because scales and minima are counted in units: the codes of 4
// and 8 bits go up to 15 and 128, and the unit is at most 1/255 of the largest scale.
double UnitErrorOf(const std::vector<float>& row) {
  double largest = 0;  // of what scale times code can be: twice the range of a group at most
  for (std::size_t k = 0; k < row.size(); k += 32) {
    const auto group = row.begin() + static_cast<std::ptrdiff_t>(k);
    const auto [low, high] = std::minmax_element(group, group + 32);
    largest = std::max(
        {largest, double{*high} - *low, std::fabs(double{*high}), std::fabs(double{*low})});
  }
  return 2 * largest * 0.5 / 255;
}

class PerIsa : public PerIsaTest {};

struct Shape {
  std::int64_t m, n, k;
};
// SmolLM2's projections cut short, and dimensions that fill neither panels, cells nor blocks.
constexpr Shape kShapes[] = {{1, 70, 576}, {3, 192, 160}, {17, 48, 1120},
                             {5, 1, 32},   {33, 17, 96},  {64, 33, 64}};

TEST_P(PerIsa, ProductsAgreeWithDoublePrecision) {
  std::uint32_t seed = 1;
  for (const Shape& shape : kShapes) {
    for (WeightType type : kAllTypes) {
      for (StoredType stored :
           {StoredType::kF32, StoredType::kQ8_0, StoredType::kQ4_0, StoredType::kQ4_1}) {
        const StoredMatrix matrix = RandomStored(stored, shape.n, shape.k, ++seed);
        const auto x = RandomFloats(static_cast<std::size_t>(shape.m * shape.k), ++seed);
        auto w = PackedMatrix::Pack(type, matrix.view, pool_);
        ASSERT_TRUE(w) << w.error().message;
        const auto y = Multiply(*w, x, shape.m, pool_);
        // An activation's code errs by at most 1.5 steps, of 1/32512 of its row's largest.
        std::vector<double> off(static_cast<std::size_t>(shape.m), 0.0);
        for (std::int64_t at = 0; at < shape.m * shape.k; ++at) {
          double& row = off[static_cast<std::size_t>(at / shape.k)];
          row = std::max(row, std::fabs(double{x[static_cast<std::size_t>(at)]}) * 1.5 / 32512);
        }
        for (std::int64_t n = 0; n < shape.n; n += 1 + shape.n / 8) {
          const std::vector<float> row = matrix.Row(n);
          // Weight error: of integers half a unit a step of the code (packed_layout.h), and where a
          // group of 32 has to be quantised half a step.
          const bool is_integer = type == WeightType::kInt8 || type == WeightType::kInt4;
          std::vector<double> step(row.size(), is_integer ? UnitErrorOf(row) : 0.0);
          const bool lossless = type == WeightType::kF32 || NaturalType(stored) == type ||
                                (type == WeightType::kInt8 && stored == StoredType::kQ8_0);
          for (std::size_t k = 0; k < row.size() && !lossless; ++k) {
            if (type == WeightType::kBf16) {
              step[k] = std::fabs(row[k]) * 0x1p-9;
              continue;
            }
            const auto group = row.begin() + static_cast<std::ptrdiff_t>(k / 32 * 32);
            const auto [low, high] = std::minmax_element(group, group + 32);
            step[k] += type == WeightType::kInt8
                           ? std::max(std::fabs(*low), std::fabs(*high)) / 127.0 * 0.51 + 1e-9
                           : (*high - *low) / 15.0 * 0.75 * 1.6 + std::fabs(*low) * 1e-3;
          }
          for (std::int64_t m = 0; m < shape.m; ++m) {
            const float* input = x.data() + m * shape.k;
            double sum = 0;
            double magnitude = 0;  // sum of |x w|
            double allowed = 0;
            for (std::int64_t k = 0; k < shape.k; ++k) {
              const auto at = static_cast<std::size_t>(k);
              sum += double{input[k]} * row[at];
              magnitude += std::fabs(double{input[k]} * row[at]);
              allowed += std::fabs(double{input[k]}) * step[at];
              if (type == WeightType::kBf16) {
                allowed += std::fabs(double{input[k]} * row[at]) * 0x1p-8;
              } else if (type != WeightType::kF32) {
                allowed += off[static_cast<std::size_t>(m)] * (std::fabs(row[at]) + step[at]);
              }
            }
            // Rounding of sums: each of k additions errs by at most half an ulp of a partial sum.
            allowed += magnitude * static_cast<double>(shape.k) * 0x1p-24 + 1e-6;
            const double got = y[static_cast<std::size_t>(m * shape.n + n)];
            ASSERT_NEAR(got, sum, allowed)
                << ToString(type) << " from " << ToString(stored) << " m=" << m << " n=" << n
                << " of " << shape.m << "x" << shape.n << "x" << shape.k;
          }
        }
      }
    }
  }
}

TEST_P(PerIsa, ARowIsTheSameWhateverRowsAreBesideIt) {
  const std::int64_t n = 83, k = 608;
  const auto x = RandomFloats(static_cast<std::size_t>(70 * k), 5);
  for (StoredType stored : {StoredType::kQ8_0, StoredType::kQ4_0, StoredType::kQ4_1,
                            StoredType::kBf16, StoredType::kF32}) {
    const StoredMatrix matrix = RandomStored(stored, n, k, 6);
    auto w = PackedMatrix::Pack(NaturalType(stored), matrix.view, pool_);
    ASSERT_TRUE(w);
    const auto all = Multiply(*w, x, 70, pool_);
    for (std::int64_t m : {1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 48, 64}) {
      const std::int64_t first = 70 - m;
      const std::vector<float> part(x.begin() + first * k, x.end());
      const auto y = Multiply(*w, part, m, pool_);
      ASSERT_EQ(std::memcmp(y.data(), all.data() + first * n, y.size() * sizeof(float)), 0)
          << ToString(stored) << " with " << m << " rows";
    }
  }
}

// Crosses every border of the blocking: 256 and 512 rows, 256 features, 512 inputs, 64 halves of
// cells.
TEST_P(PerIsa, LargeProductsEqualTheirPieces) {
  if (GetParam() < Isa::kAvx512) GTEST_SKIP() << "this set works row by row";
  const std::int64_t m = 533, n = 300, k = 2144;
  const auto x = RandomFloats(static_cast<std::size_t>(m * k), 15);
  for (StoredType stored :
       {StoredType::kQ8_0, StoredType::kQ4_0, StoredType::kQ4_1, StoredType::kBf16}) {
    const StoredMatrix matrix = RandomStored(stored, n, k, 16);
    ThreadPool single(1);
    auto w = PackedMatrix::Pack(NaturalType(stored), matrix.view, single);
    ASSERT_TRUE(w);
    const auto all = Multiply(*w, x, m, single);
    for (std::int64_t first : {0, 16, 500, 511, 520}) {
      const std::int64_t rows = std::min<std::int64_t>(13, m - first);
      const std::vector<float> part(x.begin() + first * k, x.begin() + (first + rows) * k);
      const auto y = Multiply(*w, part, rows, single);
      ASSERT_EQ(std::memcmp(y.data(), all.data() + first * n, y.size() * sizeof(float)), 0)
          << ToString(stored) << " from row " << first;
    }
  }
}

TEST_P(PerIsa, IntegerProductsEqualTheReferenceBitForBit) {
  std::uint32_t seed = 100;
  for (const Shape& shape : kShapes) {
    const auto x = RandomFloats(static_cast<std::size_t>(shape.m * shape.k), ++seed, 3.0f);
    for (StoredType stored : {StoredType::kQ8_0, StoredType::kQ4_0, StoredType::kQ4_1}) {
      const StoredMatrix matrix = RandomStored(stored, shape.n, shape.k, ++seed);
      auto w = PackedMatrix::Pack(NaturalType(stored), matrix.view, pool_);
      ASSERT_TRUE(w);
      const auto y = Multiply(*w, x, shape.m, pool_);
      ASSERT_TRUE(SelectIsa("scalar"));
      const auto expected = Multiply(*w, x, shape.m, pool_);
      ASSERT_TRUE(SelectIsa(ToString(GetParam())));
      for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], expected[i]) << ToString(stored);
    }
  }
}

// Inputs so wide that AMX's sums of 32 bits might not hold them.
TEST_P(PerIsa, WideInputsEqualTheReferenceBitForBit) {
  const std::int64_t m = 6, n = 5, k = 41'024;
  const auto x = RandomFloats(static_cast<std::size_t>(m * k), 31);
  for (StoredType stored : {StoredType::kQ8_0, StoredType::kQ4_0, StoredType::kQ4_1}) {
    const StoredMatrix matrix = RandomStored(stored, n, k, 32);
    auto w = PackedMatrix::Pack(NaturalType(stored), matrix.view, pool_);
    ASSERT_TRUE(w);
    const auto y = Multiply(*w, x, m, pool_);
    ASSERT_TRUE(SelectIsa("scalar"));
    EXPECT_EQ(y, Multiply(*w, x, m, pool_)) << ToString(stored);
    ASSERT_TRUE(SelectIsa(ToString(GetParam())));
  }
}

// The largest codes there are, where sums of 16 bits would overflow: weights of -128 and -8,
// activations of 32512 and -32512.
TEST_P(PerIsa, TheLargestCodesAreMultipliedExactly) {
  constexpr std::int64_t kRows = 20, kCols = 128;
  const float almost_two = std::nextafter(2.0f, 0.0f);
  for (StoredType stored : {StoredType::kQ8_0, StoredType::kQ4_0}) {
    StoredMatrix matrix = RandomStored(stored, 16, kCols, 1);
    const auto block = static_cast<std::size_t>(BlockBytes(stored));
    const std::uint16_t one = FloatToF16(1.0f);
    for (std::size_t b = 0; b < matrix.bytes.size(); b += block) {
      std::memcpy(matrix.bytes.data() + b, &one, sizeof one);
      const std::byte code{stored == StoredType::kQ8_0 ? std::uint8_t{0x80} : std::uint8_t{0}};
      std::fill_n(matrix.bytes.begin() + static_cast<std::ptrdiff_t>(b + 2), block - 2, code);
    }
    auto w = PackedMatrix::Pack(NaturalType(stored), matrix.view, pool_);
    ASSERT_TRUE(w);
    for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{7}, kRows}) {
      for (const float value : {almost_two, -almost_two}) {
        const std::vector<float> x(static_cast<std::size_t>(rows * kCols), value);
        const float weight = stored == StoredType::kQ8_0 ? -128.0f : -8.0f;
        for (const float y : Multiply(*w, x, rows, pool_)) {
          ASSERT_EQ(y, weight * std::copysign(2.0f, value) * kCols) << ToString(stored);
        }
      }
    }
  }
}

// BF16 and integers want different forms of an input, which keeps both.
TEST_P(PerIsa, OneInputMeetsWeightsOfEveryType) {
  constexpr std::int64_t kRows = 37, kCols = 160;
  const auto x = RandomFloats(static_cast<std::size_t>(kRows * kCols), 21);
  Activations shared;
  shared.Set(x.data(), kRows, kCols);
  for (StoredType stored : {StoredType::kQ8_0, StoredType::kQ4_0, StoredType::kBf16,
                            StoredType::kQ4_1, StoredType::kQ8_0}) {
    const StoredMatrix matrix = RandomStored(stored, 40, kCols, 22);
    auto w = PackedMatrix::Pack(NaturalType(stored), matrix.view, pool_);
    ASSERT_TRUE(w);
    std::vector<float> y(static_cast<std::size_t>(kRows * 40));
    MatMul(*w, shared, y.data(), 0, pool_);
    ASSERT_EQ(y, Multiply(*w, x, kRows, pool_)) << ToString(stored);
  }
}

TEST_P(PerIsa, WhatIsNotANumberStaysVisibleInItsRowAlone) {
  constexpr std::int64_t kRows = 20, kCols = 96;
  for (WeightType type : {WeightType::kInt8, WeightType::kInt4}) {
    const StoredMatrix matrix = RandomStored(StoredType::kF32, 33, kCols, 3);
    auto w = PackedMatrix::Pack(type, matrix.view, pool_);
    ASSERT_TRUE(w);
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e35f}) {
      for (const std::int64_t rows : {std::int64_t{2}, std::int64_t{9}, kRows}) {
        auto x = RandomFloats(static_cast<std::size_t>(rows * kCols), 4);
        x[kCols + 40] = value;
        const auto y = Multiply(*w, x, rows, pool_);
        for (std::size_t i = 0; i < y.size(); ++i) {
          ASSERT_EQ(std::isnan(y[i]), i / 33 == 1) << ToString(type) << " " << i;
        }
      }
    }
  }
}

TEST_P(PerIsa, LosslessTypesGiveBackTheStoredWeights) {
  const std::int64_t n = 35;
  const std::pair<StoredType, WeightType> pairs[] = {
      {StoredType::kF32, WeightType::kF32},     {StoredType::kBf16, WeightType::kBf16},
      {StoredType::kQ8_0, WeightType::kInt8},   {StoredType::kQ5_0, WeightType::kInt8},
      {StoredType::kIq4Nl, WeightType::kInt8},  {StoredType::kQ4_0, WeightType::kInt4},
      {StoredType::kQ4_1, WeightType::kInt4},   {StoredType::kMxfp4, WeightType::kInt8},
      {StoredType::kCodes4, WeightType::kInt4}, {StoredType::kCodes4, WeightType::kInt8},
      {StoredType::kCodes8, WeightType::kInt8}, {StoredType::kCodes4Zero, WeightType::kInt8}};
  // A row of one group has its own scale as the unit; more groups are counted in the largest one's.
  for (const std::int64_t k : {std::int64_t{32}, std::int64_t{256}}) {
    for (const auto& [stored, type] : pairs) {
      if (k < BlockElements(stored)) continue;
      const bool exact = type == WeightType::kF32 || type == WeightType::kBf16 ||
                         (k == 32 && stored != StoredType::kQ4_1);
      const StoredMatrix matrix = RandomStored(stored, n, k, 9);
      auto w = PackedMatrix::Pack(type, matrix.view, pool_);
      ASSERT_TRUE(w);
      std::vector<std::vector<float>> rows;
      for (std::int64_t row = 0; row < n; ++row) rows.push_back(matrix.Row(row));
      for (std::int64_t column = 0; column < k; ++column) {
        const auto values = Column(*w, column, pool_);
        for (std::size_t row = 0; row < rows.size(); ++row) {
          const float expected = rows[row][static_cast<std::size_t>(column)];
          const double allowed = exact ? std::fabs(expected) * 4e-7 + 1e-8 : UnitErrorOf(rows[row]);
          ASSERT_NEAR(values[row], expected, allowed) << ToString(stored);
        }
      }
    }
  }
}

// Types no integer layout holds exactly: what packing loses, against the range of a group of 32.
TEST(PackedMatrix, OtherTypesLoseLittleInTheirNaturalType) {
  ThreadPool pool(1);
  const std::int64_t n = 16, k = 512;
  const std::pair<StoredType, double> allowed[] = {{StoredType::kQ4_K, 0x1p-11},  // scale, minimum
                                                   {StoredType::kCodes4Zero, 0x1p-12},
                                                   {StoredType::kQ5_1, 0.51 / 127},
                                                   {StoredType::kQ5_K, 0.51 / 127},
                                                   {StoredType::kQ6_K, 0.51 / 127}};
  for (const auto& [stored, share] : allowed) {
    const StoredMatrix matrix = RandomStored(stored, n, k, 19);
    auto w = PackedMatrix::Pack(NaturalType(stored), matrix.view, pool);
    ASSERT_TRUE(w);
    std::vector<std::vector<float>> rows;
    for (std::int64_t row = 0; row < n; ++row) rows.push_back(matrix.Row(row));
    for (std::int64_t column = 0; column < k; ++column) {
      const auto values = Column(*w, column, pool);
      for (std::size_t row = 0; row < rows.size(); ++row) {
        const auto first = rows[row].begin() + column / 32 * 32;
        const auto [low, high] = std::minmax_element(first, first + 32);
        const double largest = std::max(std::fabs(*low), std::fabs(*high));
        // Scale and minimum of types that have both are larger than their sum by at most this.
        const bool both = stored == StoredType::kQ4_K || stored == StoredType::kCodes4Zero;
        const double range = both ? 3 * (*high - *low) + largest : largest;
        ASSERT_NEAR(values[row], rows[row][static_cast<std::size_t>(column)],
                    range * share + UnitErrorOf(rows[row]))
            << ToString(stored);
      }
    }
  }
}

TEST_P(PerIsa, WritesOnlyItsOwnColumns) {
  const StoredMatrix matrix = RandomStored(StoredType::kQ8_0, 20, 64, 3);
  const auto x = RandomFloats(5 * 64, 4);
  for (WeightType type : kAllTypes) {
    auto w = PackedMatrix::Pack(type, matrix.view, pool_);
    ASSERT_TRUE(w);
    std::vector<float> y(5 * 50, 7.0f);
    Activations input;
    input.Set(x.data(), 5, 64);
    MatMul(*w, input, y.data() + 10, 50, pool_);
    for (int row = 0; row < 5; ++row) {
      for (int column = 0; column < 50; ++column) {
        const bool inside = column >= 10 && column < 30;
        EXPECT_EQ(y[static_cast<std::size_t>(row * 50 + column)] != 7.0f, inside);
      }
    }
  }
}

TEST_P(PerIsa, SurvivesZerosAndExtremeInputs) {
  const StoredMatrix matrix = RandomStored(StoredType::kF32, 16, 64, 3);
  for (WeightType type : kAllTypes) {
    auto w = PackedMatrix::Pack(type, matrix.view, pool_);
    ASSERT_TRUE(w);
    for (float value : Multiply(*w, std::vector<float>(128, 0.0f), 2, pool_)) EXPECT_EQ(value, 0);
    Multiply(*w, std::vector<float>(64, std::numeric_limits<float>::infinity()), 1, pool_);
    Multiply(*w, std::vector<float>(64, std::numeric_limits<float>::quiet_NaN()), 1, pool_);
    Multiply(*w, std::vector<float>(64, std::numeric_limits<float>::denorm_min()), 1, pool_);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, PerIsa, kEveryIsa, NameOfIsa);

TEST(PackedMatrix, EveryStoredTypePacksIntoEveryWeightType) {
  ThreadPool pool(2);
  for (StoredType stored : kAllStored) {
    const StoredMatrix matrix = RandomStored(stored, 20, 512, 2);
    for (WeightType type : kAllTypes) {
      auto w = PackedMatrix::Pack(type, matrix.view, pool);
      ASSERT_TRUE(w) << ToString(stored) << " " << ToString(type);
      EXPECT_EQ(w->rows(), 20);
      EXPECT_EQ(w->cols(), 512);
      EXPECT_EQ(w->type(), type);
    }
  }
}

// FNV-1a of the bytes Pack makes of 40 x 160 weights whose values come from whole numbers alone.
std::uint64_t PackedHash(WeightType type, ThreadPool& pool) {
  std::vector<float> values(40 * 160);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i * 7919 % 2003) - 1001) / 512.0f;
  }
  const TensorView view{StoredType::kF32, 40, 160, std::as_bytes(std::span(values))};
  auto packed = PackedMatrix::Pack(type, view, pool);
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : packed->data()) {
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

// Packed weights are kept on disk. If this fails, the bytes of a type have changed: raise
// kPackedLayoutVersion, so that nobody computes with old bytes, and note the new hashes.
TEST(PackedMatrix, TheLayoutVersionNamesTheseBytes) {
  ThreadPool pool(2);
  EXPECT_EQ(kPackedLayoutVersion, 2u);
  EXPECT_EQ(PackedHash(WeightType::kF32, pool), 1818755454776504262u);
  EXPECT_EQ(PackedHash(WeightType::kBf16, pool), 8232573298596486048u);
  EXPECT_EQ(PackedHash(WeightType::kInt8, pool), 16540062151675902952u);
  EXPECT_EQ(PackedHash(WeightType::kInt4, pool), 5537132130294583984u);
}

TEST(PackedMatrix, AViewOfPackedBytesComputesTheSame) {
  ThreadPool pool(2);
  for (WeightType type : kAllTypes) {
    const StoredMatrix matrix = RandomStored(StoredType::kF32, 20, 96, 2);
    auto packed = PackedMatrix::Pack(type, matrix.view, pool);
    auto bytes = std::make_shared<AlignedBuffer>(packed->bytes());
    std::memcpy(bytes->as<std::byte>(), packed->data().data(), packed->bytes());
    const std::span<const std::byte> data(bytes->as<std::byte>(), packed->bytes());
    EXPECT_EQ(packed->form(), PackedMatrix::FormOf(type, matrix.view));
    auto view = PackedMatrix::View(packed->form(), data, bytes);
    ASSERT_TRUE(view) << ToString(type);
    const std::weak_ptr<AlignedBuffer> watch = bytes;
    bytes.reset();
    EXPECT_FALSE(watch.expired()) << "the view must keep its bytes";
    const std::vector<float> x = RandomFloats(3 * 96, 5);
    EXPECT_EQ(Multiply(*view, x, 3, pool), Multiply(*packed, x, 3, pool)) << ToString(type);

    PackedForm wrong = packed->form();
    wrong.rows = 100;
    EXPECT_EQ(PackedMatrix::View(wrong, data, nullptr).error().kind, ErrorKind::kCorrupt);
    wrong.rows = std::numeric_limits<std::int64_t>::max();
    EXPECT_FALSE(PackedMatrix::View(wrong, data, nullptr));
    wrong = packed->form();
    wrong.cols = -1;
    EXPECT_FALSE(PackedMatrix::View(wrong, data, nullptr));
    EXPECT_FALSE(PackedMatrix::View(packed->form(), data.subspan(1), nullptr));
  }
}

TEST(PackedMatrix, Int4NeedsNoMinimaForQ4_0) {
  ThreadPool pool(1);
  auto symmetric =
      PackedMatrix::Pack(WeightType::kInt4, RandomStored(StoredType::kQ4_0, 64, 256, 1).view, pool);
  auto with_minimum =
      PackedMatrix::Pack(WeightType::kInt4, RandomStored(StoredType::kQ4_1, 64, 256, 1).view, pool);
  ASSERT_TRUE(symmetric && with_minimum);
  // 4.5 and 5 bits a weight, and a float a row.
  EXPECT_EQ(symmetric->bytes(), 64u * (256 * 9 / 16 + 4));
  EXPECT_EQ(with_minimum->bytes(), 64u * (256 * 10 / 16 + 4));
}

TEST(PackedMatrix, RefusesShapesThatDoNotMatchTheirBytes) {
  ThreadPool pool(1);
  StoredMatrix matrix = RandomStored(StoredType::kQ8_0, 4, 64, 1);
  TensorView view = matrix.view;
  view.rows = 5;
  EXPECT_EQ(PackedMatrix::Pack(WeightType::kInt8, view, pool).error().kind, ErrorKind::kCorrupt);
  view = matrix.view;
  view.cols = 63;
  EXPECT_EQ(PackedMatrix::Pack(WeightType::kInt8, view, pool).error().kind, ErrorKind::kCorrupt);
  view = matrix.view;
  view.rows = 0;
  EXPECT_FALSE(PackedMatrix::Pack(WeightType::kInt8, view, pool));
  view.rows = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_FALSE(PackedMatrix::Pack(WeightType::kInt8, view, pool));
}

TEST(Activations, QuantisesOnceAndForgetsOnSet) {
  ThreadPool pool(1);
  const StoredMatrix matrix = RandomStored(StoredType::kQ8_0, 16, 64, 1);
  auto w = PackedMatrix::Pack(WeightType::kInt8, matrix.view, pool);
  ASSERT_TRUE(w);
  std::vector<float> x(64, 1.0f), y(16), again(16);
  Activations input;
  input.Set(x.data(), 1, 64);
  MatMul(*w, input, y.data(), 0, pool);
  x.assign(64, 2.0f);
  MatMul(*w, input, again.data(), 0, pool);
  EXPECT_EQ(y, again);  // still the form made first
  input.Set(x.data(), 1, 64);
  MatMul(*w, input, again.data(), 0, pool);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(again[i], 2 * y[i], 1e-4);
}

TEST(Isa, ChecksTheEnvironmentWithoutChoosing) {
  ASSERT_TRUE(SelectIsa("scalar"));
  ASSERT_EQ(setenv("TARE_ISA", "avx9", 1), 0);
  const Status status = CheckIsaEnvironment();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("'avx9'"), std::string::npos);
  ASSERT_EQ(unsetenv("TARE_ISA"), 0);
  EXPECT_TRUE(CheckIsaEnvironment());
  EXPECT_EQ(CurrentIsa(), Isa::kScalar);
  EXPECT_TRUE(SelectIsa("auto"));
}

TEST(Isa, RefusesUnknownNames) {
  EXPECT_EQ(SelectIsa("avx9").error().kind, ErrorKind::kInvalidArgument);
  EXPECT_TRUE(SelectIsa("scalar"));
  EXPECT_EQ(CurrentIsa(), Isa::kScalar);
  EXPECT_TRUE(SelectIsa("auto"));
  EXPECT_EQ(CurrentIsa(), SupportedIsas().back());
}

}  // namespace
}  // namespace tare::kernels
