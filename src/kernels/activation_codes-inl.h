// The integers of integer products (packed_layout.h): the step of a row of activations, and a
// weight scale in units of its feature. Forced inline only: see half.h.
#pragma once

#include "kernels/half.h"
#include "kernels/kernel_table.h"

namespace tare::kernels {

struct RowStep {
  float step = 0.0f;     // value = step * code
  float inverse = 0.0f;  // code = nearest(value * inverse); 0: all codes are 0
};

// For the largest magnitude of a row's values, as bits: those of NaN and infinity are larger than
// those of any number. Rows below 2^-100 count as zeros: their products would not matter beside any
// other. NaN, infinity and values from 2^100 on, with which products overflow, make every result
// NaN by way of the step.
TARE_KERNEL_INLINE RowStep StepFor(std::uint32_t largest_bits) {
  constexpr std::uint32_t kBias = 127;
  const std::uint32_t exponent = largest_bits >> 23;
  if (exponent < kBias - 100) return {};
  if (exponent >= kBias + 100) return {.step = BitsToFloat(0x7fc00000u), .inverse = 0.0f};
  const float largest = BitsToFloat(largest_bits);
  return {.step = largest / kLargestCode, .inverse = kLargestCode / largest};
}

// Nearest integer, ties to even, of a value below 2^22: adding 1.5 * 2^23 leaves it in the low bits
// of the mantissa. Any integer for what is larger or not a number.
TARE_KERNEL_INLINE std::int32_t Nearest(float value) {
  return static_cast<std::int32_t>(FloatToBits(value + 12582912.0f) - 0x4b400000u);
}

// The sum of a half's codes to its places in a block (packed_layout.h).
TARE_KERNEL_INLINE void StoreSum(std::int32_t sum, std::int64_t half, int slot,
                                 const CodeRows& to) {
  to.sums[half * kBlockRows + slot] = -sum;
  std::uint8_t* byte =
      to.sum_bytes + (half / 64 * kSumBytes * kBlockRows + slot) * kLineBytes + half % 64;
  for (int shift = 16; shift >= 0; shift -= 8, byte += kBlockRows * kLineBytes) {
    *byte = static_cast<std::uint8_t>(sum >> shift);
  }
}

TARE_KERNEL_INLINE float InverseUnit(float unit) { return unit > 0.0f ? 1.0f / unit : 0.0f; }

}  // namespace tare::kernels
