// INT8 and INT4 products with AVX-512 VNNI: up to 8 activation rows share each load of weights.
#if defined(__x86_64__)
#include <type_traits>

#include "kernels/avx512-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::avx512 {
namespace {

// Bytes ahead of the current cell that are asked for: one cell lasts about 40 cycles of a row, so
// this covers the latency of memory where the hardware prefetcher stops at a 4 KiB border.
constexpr std::int64_t kAhead = 4096;

enum class Codes { kInt8, kInt4, kInt4Minimum };

// What the offset of the weights adds to a dot product. Slots of a block that hold no row have
// arbitrary sums, whose results nobody reads: unsigned, because they may overflow.
template <int kOffset>
TARE_KERNEL_INLINE int OffsetPayback(std::int32_t sum) {
  return static_cast<int>(0u - static_cast<unsigned>(kOffset) * static_cast<unsigned>(sum));
}

template <Codes kCodes, int kRows>
TARE_KERNEL_INLINE void PanelRows(const WeightCells& w, const ActivationCells& x, const Output& out,
                                  std::int64_t panel, std::int64_t row) {
  constexpr bool kIsInt8 = kCodes == Codes::kInt8;
  constexpr int kOffset = kIsInt8 ? 128 : kCodes == Codes::kInt4 ? 8 : 0;
  constexpr int kCodeBytes = kIsInt8 ? kInt8Codes : kInt4Codes;
  const int slot = static_cast<int>(row % kBlockRows);
  const std::int64_t first_cell = row / kBlockRows * x.cells;
  const std::int8_t* codes = x.codes + (first_cell * kBlockRows + slot) * kInt8CellDepth;
  const float* scales = x.scales + first_cell * 2 * kBlockRows + slot;
  const std::int32_t* sums = x.sums + first_cell * 2 * kBlockRows + slot;
  const float* float_sums = x.float_sums + first_cell * 2 * kBlockRows + slot;
  const std::uint8_t* cell = CellAt(w, panel, 0);
  const __m512i low_bits = _mm512_set1_epi8(0x0f);
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));

  __m512 acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
  for (std::int64_t c = 0; c < w.cells; ++c) {
    for (int line = 0; line < kCodeBytes; line += kLineBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(cell + kAhead + line), _MM_HINT_T0);
    }
    __m512i dot0[kRows], dot1[kRows];
    for (int r = 0; r < kRows; ++r) {
      // Weights enter as unsigned bytes, kOffset too large.
      dot0[r] = _mm512_set1_epi32(OffsetPayback<kOffset>(sums[r]));
      dot1[r] = _mm512_set1_epi32(OffsetPayback<kOffset>(sums[r + kBlockRows]));
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      __m512i w0, w1;
      if constexpr (kIsInt8) {
        w0 = _mm512_xor_si512(_mm512_load_si512(cell + i * kLineBytes), flip);
        w1 = _mm512_xor_si512(_mm512_load_si512(cell + (i + 8) * kLineBytes), flip);
      } else {
        const __m512i both = _mm512_load_si512(cell + i * kLineBytes);
        w0 = _mm512_and_si512(both, low_bits);
        w1 = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_bits);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const std::int8_t* input = codes + r * kInt8CellDepth + i * 4;
        dot0[r] = _mm512_dpbusd_epi32(dot0[r], w0, BroadcastPair(input));
        dot1[r] = _mm512_dpbusd_epi32(dot1[r], w1, BroadcastPair(input + kGroup));
      }
    }
    const __m512 scale0 = LoadScales(cell + kCodeBytes);
    const __m512 scale1 = LoadScales(cell + kCodeBytes + 32);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      __m512 f0 = _mm512_mul_ps(_mm512_cvtepi32_ps(dot0[r]), scale0);
      __m512 f1 = _mm512_mul_ps(_mm512_cvtepi32_ps(dot1[r]), scale1);
      if constexpr (kCodes == Codes::kInt4Minimum) {
        const __m512 minimum0 = LoadScales(cell + kCodeBytes + kLineBytes);
        const __m512 minimum1 = LoadScales(cell + kCodeBytes + kLineBytes + 32);
        f0 = _mm512_fmadd_ps(_mm512_set1_ps(float_sums[r]), minimum0, f0);
        f1 = _mm512_fmadd_ps(_mm512_set1_ps(float_sums[r + kBlockRows]), minimum1, f1);
      }
      acc[r] = _mm512_fmadd_ps(f0, _mm512_set1_ps(scales[r]), acc[r]);
      acc[r] = _mm512_fmadd_ps(f1, _mm512_set1_ps(scales[r + kBlockRows]), acc[r]);
    }
    cell += w.cell_bytes;
    codes += kBlockRows * kInt8CellDepth;
    scales += 2 * kBlockRows;
    sums += 2 * kBlockRows;
    float_sums += 2 * kBlockRows;
  }
  const __mmask16 mask = PanelMask(w, panel);
  float* y = out.y + row * out.stride + panel * kPanelCols;
  for (int r = 0; r < kRows && row + r < x.rows; ++r) {
    _mm512_mask_storeu_ps(y + r * out.stride, mask, acc[r]);
  }
}

template <Codes kCodes>
TARE_KERNEL_INLINE void Panels(const WeightCells& w, const ActivationCells& x, const Output& out,
                               std::int64_t begin, std::int64_t end) {
  for (std::int64_t panel = begin; panel < end; ++panel) {
    std::int64_t row = 0;
    // A block of activations has room for 16 rows, so a group of 8 or 4 may end in rows that do not
    // exist: their products are computed and dropped, which is cheaper than a second pass.
    for (; row + 4 < x.rows; row += 8) PanelRows<kCodes, 8>(w, x, out, panel, row);
    if (row + 2 < x.rows) {
      PanelRows<kCodes, 4>(w, x, out, panel, row);
    } else if (row + 2 == x.rows) {
      PanelRows<kCodes, 2>(w, x, out, panel, row);
    } else if (row < x.rows) {
      PanelRows<kCodes, 1>(w, x, out, panel, row);
    }
  }
}

}  // namespace

void MatMulInt8(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  Panels<Codes::kInt8>(w, x, out, begin, end);
}

void MatMulInt4(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  if (w.with_minimum) {
    Panels<Codes::kInt4Minimum>(w, x, out, begin, end);
  } else {
    Panels<Codes::kInt4>(w, x, out, begin, end);
  }
}

}  // namespace tare::kernels::avx512

#endif  // __x86_64__
