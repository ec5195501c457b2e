// INT8 and INT4 products with AVX-512 VNNI: up to 8 activation rows share each load of weights.
#if defined(__x86_64__)
#include "kernels/avx512-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::avx512 {
namespace {

// Bytes ahead of the current cell that are asked for: one cell lasts about 40 cycles of a row, so
// this covers the latency of memory where the hardware prefetcher stops at a 4 KiB border.
constexpr std::int64_t kAhead = 4096;

enum class Codes { kInt8, kInt4, kInt4Minimum };

// Line `i` of a half cell as unsigned bytes: signed codes 128 too large, the 4-bit codes of second
// halves 16 times as large.
template <Codes kCodes, int kHalf>
TARE_KERNEL_INLINE __m512i Line(const std::uint8_t* cell, int i) {
  if constexpr (kCodes == Codes::kInt8) {
    return _mm512_xor_si512(_mm512_load_si512(cell + kHalf * kInt8Codes / 2 + i * kLineBytes),
                            _mm512_set1_epi8(static_cast<char>(0x80)));
  } else {
    return _mm512_and_si512(_mm512_load_si512(cell + i * kLineBytes),
                            _mm512_set1_epi8(static_cast<char>(kHalf == 0 ? 0x0f : 0xf0)));
  }
}

// By how many bits the sum of a half's codes must be shifted to take back what Line adds to codes;
// 4-bit codes stand for 8 less.
template <Codes kCodes, int kHalf>
constexpr int kOffsetBits = kCodes == Codes::kInt8 ? 7
                            : kHalf == 0           ? 3
                                                   : 7;

// One half of a cell into the sums of kRows rows.
template <Codes kCodes, int kHalf, int kRows>
TARE_KERNEL_INLINE void AddHalf(const std::uint8_t* cell, const ActivationCells& x,
                                std::int64_t cell_of_row, int slot, __m512* acc) {
  const std::int64_t at = (cell_of_row * 2 + kHalf) * kBlockRows + slot;
  const std::int8_t* high = x.codes + at * kLineBytes;
  const std::int8_t* low = high + kGroup;
  __m512i dot_high[kRows], dot_low[kRows];
  for (int r = 0; r < kRows; ++r) {
    dot_high[r] = _mm512_setzero_si512();
    dot_low[r] = _mm512_setzero_si512();
    if constexpr (kCodes != Codes::kInt4Minimum) {
      dot_low[r] = _mm512_slli_epi32(_mm512_set1_epi32(x.sums[at + r]), kOffsetBits<kCodes, kHalf>);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m512i line = Line<kCodes, kHalf>(cell, i);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const int from = r * kLineBytes + i * 4;
      dot_high[r] = _mm512_dpbusd_epi32(dot_high[r], line, BroadcastPair(high + from));
      dot_low[r] = _mm512_dpbusd_epi32(dot_low[r], line, BroadcastPair(low + from));
    }
  }
  constexpr int kCodeBytes = kCodes == Codes::kInt8 ? kInt8Codes : kInt4Codes;
  const __m512 scale = LoadScales(cell + kCodeBytes + kHalf * 32);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(dot_high[r], kLowBits), dot_low[r]);
    if constexpr (kCodes != Codes::kInt8 && kHalf == 1) dot = _mm512_srai_epi32(dot, 4);
    const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(x.steps[at + r]));
    acc[r] = _mm512_fmadd_ps(product, scale, acc[r]);
    if constexpr (kCodes == Codes::kInt4Minimum) {
      const __m512 minimum = LoadScales(cell + kCodeBytes + kLineBytes + kHalf * 32);
      acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(x.half_sums[at + r]), minimum, acc[r]);
    }
  }
}

template <Codes kCodes, int kRows>
TARE_KERNEL_INLINE void PanelRows(const WeightCells& w, const ActivationCells& x, const Output& out,
                                  std::int64_t panel, std::int64_t row) {
  constexpr int kCodeBytes = kCodes == Codes::kInt8 ? kInt8Codes : kInt4Codes;
  const int slot = static_cast<int>(row % kBlockRows);
  const std::int64_t first_cell = row / kBlockRows * x.cells;
  const std::uint8_t* cell = CellAt(w, panel, 0);
  __m512 acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
  for (std::int64_t c = 0; c < w.cells; ++c, cell += w.cell_bytes) {
#pragma GCC unroll 20
    for (int line = 0; line < kCodeBytes + kLineBytes; line += kLineBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(cell + kAhead + line), _MM_HINT_T0);
    }
    AddHalf<kCodes, 0, kRows>(cell, x, first_cell + c, slot, acc);
    AddHalf<kCodes, 1, kRows>(cell, x, first_cell + c, slot, acc);
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

void QuantizeRow(const float* x, std::int64_t cols, std::int64_t cells, int slot,
                 const CodeRows& to) {
  for (std::int64_t group = 0; group < 2 * cells; ++group) {
    const GroupCodes codes = QuantizeGroup(x, cols, group);
    const std::int64_t at = group * kBlockRows + slot;
    const auto store = [line = to.codes + at * kLineBytes](int part, __m512i values) {
      _mm_store_si128(reinterpret_cast<__m128i*>(line + part * 16), _mm512_cvtepi32_epi8(values));
    };
    store(0, codes.high[0]);
    store(1, codes.high[1]);
    store(2, codes.low[0]);
    store(3, codes.low[1]);
    to.steps[at] = codes.step;
    to.sums[at] = -codes.sum;
    to.half_sums[at] = static_cast<float>(codes.sum) * codes.step;
  }
}

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
