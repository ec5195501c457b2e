// The quantised blocks of GGUF files, as bytes lie in the file (little-endian, no padding), and
// those into which the codes of other checkpoints are brought.
// Source: the GGUF specification and ggml's block definitions; OCP Microscaling Formats 1.0
// (MXFP4).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor_view.h"

namespace tare::kernels {

inline constexpr int kStoredGroup = 32;

struct BlockQ8_0 {  // value = scale * code
  std::uint16_t scale;
  std::int8_t codes[kStoredGroup];
};
struct BlockQ4_0 {  // value = scale * (code - 8)
  std::uint16_t scale;
  std::uint8_t codes[kStoredGroup / 2];
};
struct BlockQ4_1 {  // value = scale * code + minimum
  std::uint16_t scale;
  std::uint16_t minimum;
  std::uint8_t codes[kStoredGroup / 2];
};
struct BlockQ5_0 {  // value = scale * (code - 16); the codes' fifth bits apart
  std::uint16_t scale;
  std::uint8_t high[4];
  std::uint8_t codes[kStoredGroup / 2];
};
struct BlockQ5_1 {  // value = scale * code + minimum
  std::uint16_t scale;
  std::uint16_t minimum;
  std::uint8_t high[4];
  std::uint8_t codes[kStoredGroup / 2];
};
struct BlockIq4Nl {  // value = scale * table[code]
  std::uint16_t scale;
  std::uint8_t codes[kStoredGroup / 2];
};

struct BlockMxfp4 {  // value = 2^(exponent - 128) * table[code]
  std::uint8_t exponent;
  std::uint8_t codes[kStoredGroup / 2];
};
struct BlockCodes4 {  // value = scale * (code - 8)
  float scale;
  std::uint8_t codes[kStoredGroup / 2];
};
struct BlockCodes4Zero {  // value = scale * (code - zero)
  float scale;
  std::int32_t zero;
  std::uint8_t codes[kStoredGroup / 2];
};
struct BlockCodes8 {  // value = scale * code
  float scale;
  std::int8_t codes[kStoredGroup];
};

// Blocks of 256: eight groups of 32, each with a 6-bit scale and minimum of its own,
// value = scale * scales[group] * code - minimum * minima[group].
inline constexpr int kStoredSuper = 256;
struct BlockQ4_K {
  std::uint16_t scale;
  std::uint16_t minimum;
  std::uint8_t scales[12];
  std::uint8_t codes[kStoredSuper / 2];
};
struct BlockQ5_K {
  std::uint16_t scale;
  std::uint16_t minimum;
  std::uint8_t scales[12];
  std::uint8_t high[kStoredSuper / 8];
  std::uint8_t codes[kStoredSuper / 2];
};
struct BlockQ6_K {  // sixteen groups of 16: value = scale * scales[group] * (code - 32)
  std::uint8_t low[kStoredSuper / 2];
  std::uint8_t high[kStoredSuper / 4];
  std::int8_t scales[kStoredSuper / 16];
  std::uint16_t scale;
};
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockIq4Nl) == 18);
static_assert(sizeof(BlockMxfp4) == 17 && sizeof(BlockCodes4) == 20);
static_assert(sizeof(BlockCodes4Zero) == 24 && sizeof(BlockCodes8) == 36);
static_assert(sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);

// Code i of a 4-bit block: the low halves of the 16 bytes come first, then the high halves.
inline int Nibble(const std::uint8_t* codes, int i) {
  constexpr int kHalf = kStoredGroup / 2;
  return i < kHalf ? codes[i] & 0x0f : codes[i - kHalf] >> 4;
}

// 32 neighbouring weights of the types above from Q5_0 on: value i = scale[i / 16] * code +
// minimum, in this order of operations. Codes are signed but for the types with a minimum.
struct CodeGroup {
  float scale[2] = {};
  float minimum = 0.0f;
  bool has_minimum = false;
  std::int8_t codes[kStoredGroup] = {};
};
CodeGroup ReadCodes(StoredType type, const std::byte* row, std::int64_t group);

inline const std::byte* RowBytes(const TensorView& tensor, std::int64_t row) {
  return tensor.data.data() + static_cast<std::size_t>(row) * RowSize(tensor.type, tensor.cols);
}

// kStoredGroup codes of 4 bits as all these blocks have them: code i low, code i + 16 high.
template <typename Block>
void WriteNibbles(const std::uint8_t* codes, Block& block) {
  constexpr int kHalf = kStoredGroup / 2;
  for (int i = 0; i < kHalf; ++i) {
    block.codes[i] = static_cast<std::uint8_t>(codes[i] | codes[i + kHalf] << 4);
  }
}

}  // namespace tare::kernels
