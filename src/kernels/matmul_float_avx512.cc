// F32 and BF16 products with AVX-512 (BF16: its dot-product instruction). Every output is summed in
// the same order whatever the number of rows, so a row's result does not depend on its neighbours.
#if defined(__x86_64__)
#include "kernels/avx512-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::avx512 {
namespace {

template <int kRows>
TARE_KERNEL_INLINE void F32Rows(const WeightCells& w, const ActivationCells& x, const Output& out,
                                std::int64_t panel, std::int64_t row) {
  // Two sums, of even and odd inputs: one chain of additions would wait for its own latency.
  __m512 even[kRows], odd[kRows];
  for (int r = 0; r < kRows; ++r) even[r] = odd[r] = _mm512_setzero_ps();
  const auto* line = reinterpret_cast<const float*>(CellAt(w, panel, 0));
  const float* input = x.f32 + row * x.cols;
  std::int64_t k = 0;
  for (; k + 2 <= x.cols; k += 2, line += 2 * kPanelCols) {
    const __m512 w0 = _mm512_load_ps(line);
    const __m512 w1 = _mm512_load_ps(line + kPanelCols);
    _mm_prefetch(reinterpret_cast<const char*>(line + 1024), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(line + 1024 + kPanelCols), _MM_HINT_T0);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      even[r] = _mm512_fmadd_ps(w0, _mm512_set1_ps(input[r * x.cols + k]), even[r]);
      odd[r] = _mm512_fmadd_ps(w1, _mm512_set1_ps(input[r * x.cols + k + 1]), odd[r]);
    }
  }
  const __mmask16 mask = PanelMask(w, panel);
  for (int r = 0; r < kRows; ++r) {
    if (k < x.cols) {
      even[r] =
          _mm512_fmadd_ps(_mm512_load_ps(line), _mm512_set1_ps(input[r * x.cols + k]), even[r]);
    }
    _mm512_mask_storeu_ps(out.y + (row + r) * out.stride + panel * kPanelCols, mask,
                          _mm512_add_ps(even[r], odd[r]));
  }
}

template <int kRows>
TARE_KERNEL_INLINE void Bf16Rows(const WeightCells& w, const ActivationCells& x, const Output& out,
                                 std::int64_t panel, std::int64_t row) {
  __m512 even[kRows], odd[kRows];
  for (int r = 0; r < kRows; ++r) even[r] = odd[r] = _mm512_setzero_ps();
  const std::uint16_t* input =
      x.bf16 + (row / kBlockRows * x.cells * kBlockRows + row % kBlockRows) * kBf16CellDepth;
  const std::uint8_t* line = CellAt(w, panel, 0);
  for (std::int64_t c = 0; c < w.cells; ++c, input += kBlockRows * kBf16CellDepth) {
#pragma GCC unroll 8
    for (int i = 0; i < kBf16CellDepth; i += 4, line += 2 * kLineBytes) {
      const auto w0 = (__m512bh)_mm512_load_si512(line);
      const auto w1 = (__m512bh)_mm512_load_si512(line + kLineBytes);
      _mm_prefetch(reinterpret_cast<const char*>(line + 4096), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(line + 4096 + kLineBytes), _MM_HINT_T0);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const std::uint16_t* pair = input + r * kBf16CellDepth + i;
        even[r] = _mm512_dpbf16_ps(even[r], w0, (__m512bh)BroadcastPair(pair));
        odd[r] = _mm512_dpbf16_ps(odd[r], w1, (__m512bh)BroadcastPair(pair + 2));
      }
    }
  }
  const __mmask16 mask = PanelMask(w, panel);
  for (int r = 0; r < kRows; ++r) {
    _mm512_mask_storeu_ps(out.y + (row + r) * out.stride + panel * kPanelCols, mask,
                          _mm512_add_ps(even[r], odd[r]));
  }
}

}  // namespace

void MatMulF32(const WeightCells& w, const ActivationCells& x, const Output& out,
               std::int64_t begin, std::int64_t end) {
  for (std::int64_t panel = begin; panel < end; ++panel) {
    std::int64_t row = 0;
    for (; row + 8 <= x.rows; row += 8) F32Rows<8>(w, x, out, panel, row);
    for (; row + 2 <= x.rows; row += 2) F32Rows<2>(w, x, out, panel, row);
    for (; row < x.rows; ++row) F32Rows<1>(w, x, out, panel, row);
  }
}

void MatMulBf16(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  for (std::int64_t panel = begin; panel < end; ++panel) {
    std::int64_t row = 0;
    for (; row + 8 <= x.rows; row += 8) Bf16Rows<8>(w, x, out, panel, row);
    for (; row + 2 <= x.rows; row += 2) Bf16Rows<2>(w, x, out, panel, row);
    for (; row < x.rows; ++row) Bf16Rows<1>(w, x, out, panel, row);
  }
}

}  // namespace tare::kernels::avx512

#endif  // __x86_64__
