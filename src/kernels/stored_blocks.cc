#include "kernels/stored_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/half.h"

namespace tare::kernels {
namespace {

template <typename Block>
Block Load(const std::byte* row, std::int64_t index) {
  Block block;
  std::memcpy(&block, row + index * static_cast<std::int64_t>(sizeof block), sizeof block);
  return block;
}

// Bit i of four little-endian bytes, as the fifth bit of a code.
int FifthBit(const std::uint8_t* bits, int i) { return (bits[i / 8] >> (i % 8) & 1) << 4; }

// Scale and minimum j of the eight 6-bit pairs packed into 12 bytes.
struct Pair {
  int scale;
  int minimum;
};
Pair SixBitPair(const std::uint8_t* packed, int j) {
  if (j < 4) return {packed[j] & 63, packed[j + 4] & 63};
  return {(packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4, packed[j + 4] >> 4 | (packed[j] >> 6)
                                                                                     << 4};
}

// What Q4_K and Q5_K share: the group's pair times the block's two numbers.
template <typename Block>
void ScaleAndMinimum(const Block& block, int group, CodeGroup& out) {
  const Pair pair = SixBitPair(block.scales, group);
  out.scale[0] = out.scale[1] = F16ToFloat(block.scale) * static_cast<float>(pair.scale);
  out.minimum = -(F16ToFloat(block.minimum) * static_cast<float>(pair.minimum));
  out.has_minimum = true;
}

// The low 4 bits of a group: the groups of a 32-byte piece are its low and its high halves.
int PieceNibble(const std::uint8_t* codes, int group, int i) {
  return codes[group / 2 * kStoredGroup + i] >> (group % 2 * 4) & 15;
}

void Read(const BlockQ5_0& block, int, CodeGroup& out) {
  out.scale[0] = out.scale[1] = F16ToFloat(block.scale);
  for (int i = 0; i < kStoredGroup; ++i) {
    out.codes[i] =
        static_cast<std::int8_t>((Nibble(block.codes, i) | FifthBit(block.high, i)) - 16);
  }
}

void Read(const BlockQ5_1& block, int, CodeGroup& out) {
  out.scale[0] = out.scale[1] = F16ToFloat(block.scale);
  out.minimum = F16ToFloat(block.minimum);
  out.has_minimum = true;
  for (int i = 0; i < kStoredGroup; ++i) {
    out.codes[i] = static_cast<std::int8_t>(Nibble(block.codes, i) | FifthBit(block.high, i));
  }
}

void Read(const BlockIq4Nl& block, int, CodeGroup& out) {
  static constexpr std::int8_t kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
  out.scale[0] = out.scale[1] = F16ToFloat(block.scale);
  for (int i = 0; i < kStoredGroup; ++i) out.codes[i] = kValues[Nibble(block.codes, i)];
}

// E2M1 times two, so that codes are whole numbers.
void Read(const BlockMxfp4& block, int, CodeGroup& out) {
  static constexpr std::int8_t kValues[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                              0, -1, -2, -3, -4, -6, -8, -12};
  out.scale[0] = out.scale[1] = std::ldexp(1.0f, int{block.exponent} - 128);
  for (int i = 0; i < kStoredGroup; ++i) out.codes[i] = kValues[Nibble(block.codes, i)];
}

void Read(const BlockCodes4& block, int, CodeGroup& out) {
  out.scale[0] = out.scale[1] = block.scale;
  for (int i = 0; i < kStoredGroup; ++i) {
    out.codes[i] = static_cast<std::int8_t>(Nibble(block.codes, i) - 8);
  }
}

void Read(const BlockCodes4Zero& block, int, CodeGroup& out) {
  out.scale[0] = out.scale[1] = block.scale;
  for (int i = 0; i < kStoredGroup; ++i) {
    out.codes[i] = static_cast<std::int8_t>(Nibble(block.codes, i) - block.zero);
  }
}

void Read(const BlockCodes8& block, int, CodeGroup& out) {
  out.scale[0] = out.scale[1] = block.scale;
  std::copy(std::begin(block.codes), std::end(block.codes), out.codes);
}

void Read(const BlockQ4_K& block, int group, CodeGroup& out) {
  ScaleAndMinimum(block, group, out);
  for (int i = 0; i < kStoredGroup; ++i) {
    out.codes[i] = static_cast<std::int8_t>(PieceNibble(block.codes, group, i));
  }
}

void Read(const BlockQ5_K& block, int group, CodeGroup& out) {
  ScaleAndMinimum(block, group, out);
  for (int i = 0; i < kStoredGroup; ++i) {
    const int fifth = (block.high[i] >> group & 1) << 4;
    out.codes[i] = static_cast<std::int8_t>(PieceNibble(block.codes, group, i) | fifth);
  }
}

// Two halves of 128; within a half, groups 0 and 1 are the low and groups 2 and 3 the high 4 bits
// of the same 64 bytes.
void Read(const BlockQ6_K& block, int group, CodeGroup& out) {
  const float scale = F16ToFloat(block.scale);
  out.scale[0] = scale * static_cast<float>(block.scales[2 * group]);
  out.scale[1] = scale * static_cast<float>(block.scales[2 * group + 1]);
  const int half = group / 4, in_half = group % 4;
  for (int i = 0; i < kStoredGroup; ++i) {
    const int low = block.low[half * 64 + in_half % 2 * kStoredGroup + i] >> (in_half / 2 * 4) & 15;
    const int high = block.high[half * kStoredGroup + i] >> (2 * in_half) & 3;
    out.codes[i] = static_cast<std::int8_t>((low | high << 4) - 32);
  }
}

template <typename Block>
void ReadFrom(const std::byte* row, std::int64_t group, int groups_per_block, CodeGroup& out) {
  Read(Load<Block>(row, group / groups_per_block), static_cast<int>(group % groups_per_block), out);
}

}  // namespace

CodeGroup ReadCodes(StoredType type, const std::byte* row, std::int64_t group) {
  CodeGroup out;
  const int per_block = BlockElements(type) / kStoredGroup;
  switch (type) {
    case StoredType::kQ5_0:
      ReadFrom<BlockQ5_0>(row, group, per_block, out);
      return out;
    case StoredType::kQ5_1:
      ReadFrom<BlockQ5_1>(row, group, per_block, out);
      return out;
    case StoredType::kIq4Nl:
      ReadFrom<BlockIq4Nl>(row, group, per_block, out);
      return out;
    case StoredType::kMxfp4:
      ReadFrom<BlockMxfp4>(row, group, per_block, out);
      return out;
    case StoredType::kCodes4:
      ReadFrom<BlockCodes4>(row, group, per_block, out);
      return out;
    case StoredType::kCodes4Zero:
      ReadFrom<BlockCodes4Zero>(row, group, per_block, out);
      return out;
    case StoredType::kCodes8:
      ReadFrom<BlockCodes8>(row, group, per_block, out);
      return out;
    case StoredType::kQ4_K:
      ReadFrom<BlockQ4_K>(row, group, per_block, out);
      return out;
    case StoredType::kQ5_K:
      ReadFrom<BlockQ5_K>(row, group, per_block, out);
      return out;
    case StoredType::kQ6_K:
      ReadFrom<BlockQ6_K>(row, group, per_block, out);
      return out;
    case StoredType::kF32:
    case StoredType::kF16:
    case StoredType::kBf16:
    case StoredType::kQ8_0:
    case StoredType::kQ4_0:
    case StoredType::kQ4_1:
      break;
  }
  TARE_CHECK(false);
  return out;
}

}  // namespace tare::kernels
