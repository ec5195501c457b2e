// Pieces shared by the AVX-512 and AMX kernels. Forced inline only: see half.h.
#pragma once

#include <immintrin.h>

#include "kernels/half.h"
#include "kernels/packed_layout.h"

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

}  // namespace tare::kernels
