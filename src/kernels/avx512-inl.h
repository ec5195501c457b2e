// Pieces shared by the AVX-512 and AMX kernels. Forced inline only: see half.h.
#pragma once

#include <immintrin.h>

#include "kernels/activation_codes-inl.h"

namespace tare::kernels {

TARE_KERNEL_INLINE const std::uint8_t* CellAt(const WeightCells& w, std::int64_t panel,
                                              std::int64_t cell) {
  return w.data + panel * w.panel_bytes + cell * w.cell_bytes;
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

// A feature's unit and what turns its scales into numbers of units (packed_layout.h).
struct Units {
  __m512 unit;
  __m512 inverse;
};

TARE_KERNEL_INLINE Units UnitsOf(const WeightCells& w, std::int64_t panel) {
  const __m512 unit = _mm512_load_ps(CellAt(w, panel, w.cells));
  const __mmask16 positive = _mm512_cmp_ps_mask(unit, _mm512_setzero_ps(), _CMP_GT_OQ);
  return {unit, _mm512_maskz_div_ps(positive, _mm512_set1_ps(1.0f), unit)};
}

// 16 scales or minima as numbers of units.
TARE_KERNEL_INLINE __m512i LoadInUnits(const std::uint8_t* halves, __m512 inverse) {
  return _mm512_cvtps_epi32(_mm512_mul_ps(LoadScales(halves), inverse));
}

}  // namespace tare::kernels
