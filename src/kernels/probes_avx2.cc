#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/probes.h"

namespace tare::kernels {

// 12 independent chains cover the latency of 4 cycles on two ports.
std::int64_t ProbeFmaAvx2(std::int64_t rounds) {
  constexpr int kChains = 12;
  __m256 acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) acc[i] = _mm256_fmadd_ps(acc[i], a, b);
  }
  // Makes the results count as used.
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) asm volatile("" ::"x"(acc[i]));
  return rounds * kChains * 8 * 2;
}

std::uint64_t ReadAvx2(const std::uint8_t* data, std::size_t bytes) {
  __m256i acc[4] = {};
  for (std::size_t at = 0; at < bytes; at += 128) {
    for (std::size_t i = 0; i < 4; ++i) {
      acc[i] = _mm256_xor_si256(
          acc[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + at + 32 * i)));
    }
  }
  const __m256i sum =
      _mm256_xor_si256(_mm256_xor_si256(acc[0], acc[1]), _mm256_xor_si256(acc[2], acc[3]));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(sum, 0));
}

}  // namespace tare::kernels

#endif  // __x86_64__
