// Pieces shared by the AVX-512 and AMX kernels. Forced inline only: see half.h.
#pragma once

#include <immintrin.h>

#include "kernels/half.h"
#include "kernels/packed_layout.h"
#include "kernels/quantize_step-inl.h"

namespace tare::kernels {

TARE_KERNEL_INLINE const std::uint8_t* CellAt(const WeightCells& w, std::int64_t panel,
                                              std::int64_t cell) {
  return w.data + (panel * w.cells + cell) * w.cell_bytes;
}

// The features of a panel that exist, as a store mask.
TARE_KERNEL_INLINE __mmask16 PanelMask(const WeightCells& w, std::int64_t panel) {
  const std::int64_t left = w.rows - panel * kPanelCols;
  return left >= kPanelCols ? static_cast<__mmask16>(0xffff)
                            : static_cast<__mmask16>((1u << left) - 1u);
}

// 16 half-precision scales as floats.
TARE_KERNEL_INLINE __m512 LoadScales(const std::uint8_t* halves) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}

TARE_KERNEL_INLINE __m512i BroadcastPair(const void* four_bytes) {
  std::int32_t value;
  __builtin_memcpy(&value, four_bytes, sizeof value);
  return _mm512_set1_epi32(value);
}

// 32 values of an activation row as codes (packed_layout.h), 16 to a register.
struct GroupCodes {
  __m512i high[2];
  __m512i low[2];
  float step;
  std::int32_t sum;
};

TARE_KERNEL_INLINE GroupCodes QuantizeGroup(const float* x, std::int64_t cols, std::int64_t group) {
  __m512 values[2];
  for (int part = 0; part < 2; ++part) {
    const std::int64_t first = group * kGroup + part * 16;
    const std::int64_t left = cols - first;
    const auto mask = left >= 16  ? static_cast<__mmask16>(0xffff)
                      : left <= 0 ? static_cast<__mmask16>(0)
                                  : static_cast<__mmask16>((1u << left) - 1u);
    values[part] = _mm512_maskz_loadu_ps(mask, x + (left > 0 ? first : 0));
  }
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  const __m512i largest =
      _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(values[0]), magnitude_bits),
                       _mm512_and_si512(_mm512_castps_si512(values[1]), magnitude_bits));
  const Steps steps = StepsFor(_mm512_reduce_max_epu32(largest));
  GroupCodes codes;
  codes.step = steps.step;
  __m512i sum = _mm512_setzero_si512();
  for (int part = 0; part < 2; ++part) {
    __m512i code = _mm512_setzero_si512();
    if (steps.inverse > 0.0f) {
      code = _mm512_cvt_roundps_epi32(_mm512_mul_ps(values[part], _mm512_set1_ps(steps.inverse)),
                                      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    sum = _mm512_add_epi32(sum, code);
    const __m512i high =
        _mm512_srai_epi32(_mm512_add_epi32(code, _mm512_set1_epi32(1 << (kLowBits - 1))), kLowBits);
    codes.high[part] = _mm512_max_epi32(_mm512_min_epi32(high, _mm512_set1_epi32(kHighLimit)),
                                        _mm512_set1_epi32(-kHighLimit));
    codes.low[part] = _mm512_sub_epi32(code, _mm512_slli_epi32(codes.high[part], kLowBits));
  }
  codes.sum = _mm512_reduce_add_epi32(sum);
  return codes;
}

}  // namespace tare::kernels
