// The quantised blocks of GGUF files, as bytes lie in the file (little-endian, no padding).
// Source: the GGUF specification and ggml's block definitions.
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
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);

// Code i of a 4-bit block: the low halves of the 16 bytes come first, then the high halves.
inline int Nibble(const std::uint8_t* codes, int i) {
  constexpr int kHalf = kStoredGroup / 2;
  return i < kHalf ? codes[i] & 0x0f : codes[i - kHalf] >> 4;
}

inline const std::byte* RowBytes(const TensorView& tensor, std::int64_t row) {
  const auto row_bytes = static_cast<std::size_t>(tensor.cols / BlockElements(tensor.type)) *
                         static_cast<std::size_t>(BlockBytes(tensor.type));
  return tensor.data.data() + static_cast<std::size_t>(row) * row_bytes;
}

}  // namespace tare::kernels
