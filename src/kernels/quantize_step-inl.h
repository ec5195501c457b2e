// The step of 32 activation codes (packed_layout.h). Forced inline only: see half.h.
#pragma once

#include "kernels/half.h"
#include "kernels/packed_layout.h"

namespace tare::kernels {

struct Steps {
  float step = 0.0f;     // value = step * code
  float inverse = 0.0f;  // code = nearest(value * inverse); 0: all codes are 0
};

// For the largest magnitude of the values, as bits: those of NaN and infinity are larger than those
// of any number. Values below 2^-100 count as zeros: their products would not matter beside any
// other. NaN, infinity and values from 2^100 on, with which products overflow, make every result
// NaN by way of the step.
TARE_KERNEL_INLINE Steps StepsFor(std::uint32_t largest_bits) {
  constexpr std::uint32_t kBias = 127;
  const std::uint32_t exponent = largest_bits >> 23;
  if (exponent < kBias - 100) return {};
  if (exponent >= kBias + 100) return {.step = BitsToFloat(0x7fc00000u), .inverse = 0.0f};
  constexpr std::uint32_t kBelow = kCodeBits - 1;
  return {.step = BitsToFloat((exponent - kBelow) << 23),
          .inverse = BitsToFloat((2 * kBias + kBelow - exponent) << 23)};
}

}  // namespace tare::kernels
