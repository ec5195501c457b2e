#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/probes.h"

namespace tare::kernels {

std::int64_t ProbeFmaAvx512(std::int64_t rounds) {
  constexpr int kChains = 16;
  __m512 acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_fmadd_ps(acc[i], a, b);
  }
  // Makes the results count as used.
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) asm volatile("" ::"v"(acc[i]));
  return rounds * kChains * 16 * 2;
}

std::int64_t ProbeVnniAvx512(std::int64_t rounds) {
  constexpr int kChains = 16;
  __m512i acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_epi32(i);
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-2);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_dpbusd_epi32(acc[i], a, b);
  }
  // Makes the results count as used.
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) asm volatile("" ::"v"(acc[i]));
  return rounds * kChains * 64 * 2;
}

std::uint64_t ReadAvx512(const std::uint8_t* data, std::size_t bytes) {
  __m512i acc[8] = {};
  for (std::size_t at = 0; at < bytes; at += 512) {
    for (std::size_t i = 0; i < 8; ++i) {
      acc[i] = _mm512_xor_si512(acc[i], _mm512_load_si512(data + at + 64 * i));
    }
  }
  __m512i sum = acc[0];
  for (int i = 1; i < 8; ++i) sum = _mm512_xor_si512(sum, acc[i]);
  return static_cast<std::uint64_t>(_mm512_reduce_add_epi64(sum));
}

}  // namespace tare::kernels

#endif  // __x86_64__
