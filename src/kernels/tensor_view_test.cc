#include "kernels/tensor_view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/half.h"
#include "kernels/stored_blocks.h"

namespace tare::kernels {
namespace {

TEST(Half, EveryF16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = F16ToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(value))));
    } else {
      ASSERT_EQ(FloatToF16(value), half) << value;
    }
  }
}

TEST(Half, KnownF16Values) {
  EXPECT_EQ(F16ToFloat(0x3c00), 1.0f);
  EXPECT_EQ(F16ToFloat(0xc000), -2.0f);
  EXPECT_EQ(F16ToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(F16ToFloat(0x0001), 0x1p-24f);
  EXPECT_TRUE(std::isinf(F16ToFloat(0x7c00)));
  EXPECT_EQ(FloatToF16(65520.0f), 0x7c00);  // halfway to 65536 rounds to infinity
  EXPECT_EQ(FloatToF16(1e30f), 0x7c00);
  EXPECT_EQ(FloatToF16(-1e-30f), 0x8000);
  EXPECT_EQ(FloatToF16(1.0f + 0x1p-11f), 0x3c00);      // tie goes to even
  EXPECT_EQ(FloatToF16(1.0f + 3 * 0x1p-11f), 0x3c02);  // tie goes to even, upwards
}

TEST(Half, Bf16RoundsToNearestEven) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(FloatToBf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::nanf("")))));
  EXPECT_TRUE(std::isinf(Bf16ToFloat(FloatToBf16(3.4e38f))));
}

TensorView OneRow(StoredType type, const void* bytes, std::size_t size, std::int64_t cols) {
  return {type, 1, cols, {static_cast<const std::byte*>(bytes), size}};
}

std::vector<std::uint8_t> FromHex(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// tests/golden/ggml_blocks.py wrote these with the gguf package.
TEST(DequantizeRow, EqualsTheReferenceBitForBit) {
  std::ifstream golden(TARE_SOURCE_DIR "/tests/golden/ggml_blocks.txt");
  ASSERT_TRUE(golden) << "tests/golden/ggml_blocks.txt is missing";
  int blocks = 0;
  for (std::string name, block_hex, values_hex; golden >> name >> block_hex >> values_hex;) {
    StoredType type = StoredType::kF32;
    for (const StoredType candidate :
         {StoredType::kQ5_0, StoredType::kQ5_1, StoredType::kQ4_K, StoredType::kQ5_K,
          StoredType::kQ6_K, StoredType::kIq4Nl, StoredType::kMxfp4}) {
      if (name == ToString(candidate)) type = candidate;
    }
    ASSERT_NE(type, StoredType::kF32) << name;
    const auto block = FromHex(block_hex);
    const auto expected = FromHex(values_hex);
    ASSERT_EQ(block.size(), static_cast<std::size_t>(BlockBytes(type)));
    std::vector<float> values(static_cast<std::size_t>(BlockElements(type)));
    ASSERT_EQ(expected.size(), values.size() * sizeof(float));
    DequantizeRow(OneRow(type, block.data(), block.size(), BlockElements(type)), 0, values);
    EXPECT_EQ(std::memcmp(values.data(), expected.data(), expected.size()), 0) << name;
    ++blocks;
  }
  EXPECT_EQ(blocks, 15);
}

TEST(DequantizeRow, BlocksFollowTheirFormulas) {
  float out[32];
  BlockQ8_0 q8{FloatToF16(0.5f), {}};
  BlockQ4_0 q40{FloatToF16(0.5f), {}};
  BlockQ4_1 q41{FloatToF16(0.5f), FloatToF16(-3.0f), {}};
  for (int i = 0; i < 32; ++i) q8.codes[i] = static_cast<std::int8_t>(i * 8 - 128);
  for (int i = 0; i < 16; ++i) {
    q40.codes[i] = q41.codes[i] = static_cast<std::uint8_t>(i | (15 - i) << 4);
  }
  DequantizeRow(OneRow(StoredType::kQ8_0, &q8, sizeof q8, 32), 0, out);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 0.5f * static_cast<float>(i * 8 - 128));
  DequantizeRow(OneRow(StoredType::kQ4_0, &q40, sizeof q40, 32), 0, out);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[i], 0.5f * static_cast<float>(i - 8));
    EXPECT_EQ(out[i + 16], 0.5f * static_cast<float>(7 - i));
  }
  DequantizeRow(OneRow(StoredType::kQ4_1, &q41, sizeof q41, 32), 0, out);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[i], 0.5f * static_cast<float>(i) - 3.0f);
    EXPECT_EQ(out[i + 16], 0.5f * static_cast<float>(15 - i) - 3.0f);
  }
  BlockCodes4 c4{0.3f, {}};
  BlockCodes4Zero c4z{0.3f, 16, {}};
  BlockCodes8 c8{0.3f, {}};
  for (int i = 0; i < 16; ++i) {
    c4.codes[i] = c4z.codes[i] = static_cast<std::uint8_t>(i | (15 - i) << 4);
  }
  for (int i = 0; i < 32; ++i) c8.codes[i] = static_cast<std::int8_t>(i * 8 - 128);
  DequantizeRow(OneRow(StoredType::kCodes4, &c4, sizeof c4, 32), 0, out);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(out[i], 0.3f * static_cast<float>(i - 8));
  DequantizeRow(OneRow(StoredType::kCodes4Zero, &c4z, sizeof c4z, 32), 0, out);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(out[i + 16], 0.3f * static_cast<float>(-1 - i));
  DequantizeRow(OneRow(StoredType::kCodes8, &c8, sizeof c8, 32), 0, out);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 0.3f * static_cast<float>(i * 8 - 128));
}

}  // namespace
}  // namespace tare::kernels
