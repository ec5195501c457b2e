// Conversions between float and the two 16-bit float formats. Round to nearest even; NaN stays NaN.
// Everything is forced inline: translation units of different instruction sets include this file,
// and an out-of-line copy built for one of them must never be shared with the others.
#pragma once

#include <cstdint>

namespace tare::kernels {

#define TARE_KERNEL_INLINE static inline __attribute__((always_inline))

TARE_KERNEL_INLINE float BitsToFloat(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

TARE_KERNEL_INLINE std::uint32_t FloatToBits(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

TARE_KERNEL_INLINE float Bf16ToFloat(std::uint16_t half) {
  return BitsToFloat(static_cast<std::uint32_t>(half) << 16);
}

TARE_KERNEL_INLINE std::uint16_t FloatToBf16(float value) {
  const std::uint32_t bits = FloatToBits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // a quiet NaN
  }
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE 754 binary16.
TARE_KERNEL_INLINE float F16ToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return BitsToFloat(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Shifting exponent and mantissa into place leaves a value 2^112 too small, subnormals included.
  const float value = BitsToFloat(magnitude << 13) * 0x1p112f;
  return BitsToFloat(sign | FloatToBits(value));
}

TARE_KERNEL_INLINE std::uint16_t FloatToF16(float value) {
  const std::uint32_t bits = FloatToBits(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65536 and up
  if (magnitude < 0x38800000u) {  // below 2^-14: a subnormal half, in steps of 2^-24
    // Adding 0.5 puts the step at the last mantissa bit, so the addition itself rounds to even.
    const std::uint32_t rounded = FloatToBits(BitsToFloat(magnitude) + 0.5f);
    return static_cast<std::uint16_t>(sign | (rounded - 0x3f000000u));
  }
  const std::uint32_t rebased = magnitude - (112u << 23);
  return static_cast<std::uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
}

}  // namespace tare::kernels
