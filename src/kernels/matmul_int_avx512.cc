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

// Sums of a row: of the even features, then of the odd ones.
struct Totals {
  __m512i even = _mm512_setzero_si512();
  __m512i odd = _mm512_setzero_si512();
};

TARE_KERNEL_INLINE void AddProducts(__m512i a, __m512i b, Totals& to) {
  to.even = _mm512_add_epi64(to.even, _mm512_mul_epi32(a, b));
  to.odd = _mm512_add_epi64(to.odd,
                            _mm512_mul_epi32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32)));
}

// One half of a cell into the sums of kRows rows.
template <Codes kCodes, int kHalf, int kRows>
TARE_KERNEL_INLINE void AddHalf(const std::uint8_t* cell, const std::int8_t* codes,
                                const std::int32_t* sums, __m512 inverse, Totals* totals) {
  const std::int8_t* high = codes + kHalf * kGroup;
  const std::int8_t* low = high + kBlockRows * kLineBytes;
  sums += kHalf * kBlockRows;
  __m512i dot_high[kRows], dot_low[kRows];
  for (int r = 0; r < kRows; ++r) {
    dot_high[r] = _mm512_setzero_si512();
    dot_low[r] = _mm512_setzero_si512();
    if constexpr (kCodes != Codes::kInt4Minimum) {
      dot_low[r] = _mm512_slli_epi32(_mm512_set1_epi32(sums[r]), kOffsetBits<kCodes, kHalf>);
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
  const __m512i factor = LoadInUnits(cell + kCodeBytes + kHalf * 32, inverse);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(dot_high[r], kLowBits), dot_low[r]);
    if constexpr (kCodes != Codes::kInt8 && kHalf == 1) dot = _mm512_srai_epi32(dot, 4);
    AddProducts(dot, factor, totals[r]);
    if constexpr (kCodes == Codes::kInt4Minimum) {
      const __m512i minimum = LoadInUnits(cell + kCodeBytes + kLineBytes + kHalf * 32, inverse);
      AddProducts(minimum, _mm512_set1_epi32(-sums[r]), totals[r]);
    }
  }
}

TARE_KERNEL_INLINE __m512 ToFloats(const Totals& totals) {
  // Lane i of the even half is feature 2 i, of the odd half 2 i + 1.
  const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  const __m512 both = _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtepi64_ps(totals.even)),
                                         _mm512_cvtepi64_ps(totals.odd), 1);
  return _mm512_permutexvar_ps(order, both);
}

template <Codes kCodes, int kRows>
TARE_KERNEL_INLINE void PanelRows(const WeightCells& w, const ActivationCells& x, const Output& out,
                                  std::int64_t panel, std::int64_t row) {
  constexpr int kCodeBytes = kCodes == Codes::kInt8 ? kInt8Codes : kInt4Codes;
  const int slot = static_cast<int>(row % kBlockRows);
  const std::int64_t first_cell = row / kBlockRows * x.cells;
  const std::uint8_t* cell = CellAt(w, panel, 0);
  const std::int8_t* codes = x.codes + (first_cell * 2 * kBlockRows + slot) * kLineBytes;
  const std::int32_t* sums = x.sums + first_cell * 2 * kBlockRows + slot;
  const Units units = UnitsOf(w, panel);
  Totals totals[kRows];
  for (std::int64_t c = 0; c < w.cells; ++c, cell += w.cell_bytes) {
#pragma GCC unroll 20
    for (int line = 0; line < kCodeBytes + kLineBytes; line += kLineBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(cell + kAhead + line), _MM_HINT_T0);
    }
    AddHalf<kCodes, 0, kRows>(cell, codes, sums, units.inverse, totals);
    AddHalf<kCodes, 1, kRows>(cell, codes, sums, units.inverse, totals);
    codes += 2 * kBlockRows * kLineBytes;
    sums += 2 * kBlockRows;
  }
  const __mmask16 mask = PanelMask(w, panel);
  const float* steps = x.steps + row / kBlockRows * kBlockRows + slot;
  float* y = out.y + row * out.stride + panel * kPanelCols;
  for (int r = 0; r < kRows && row + r < x.rows; ++r) {
    const __m512 scale = _mm512_mul_ps(units.unit, _mm512_set1_ps(steps[r]));
    _mm512_mask_storeu_ps(y + r * out.stride, mask, _mm512_mul_ps(ToFloats(totals[r]), scale));
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
  const auto some_of = [cols](std::int64_t first) {
    const std::int64_t left = cols - first;
    return left >= 16  ? static_cast<__mmask16>(0xffff)
           : left <= 0 ? static_cast<__mmask16>(0)
                       : static_cast<__mmask16>((1u << left) - 1u);
  };
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i largest = _mm512_setzero_si512();
  for (std::int64_t k = 0; k < cols; k += 16) {
    const __m512i bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(some_of(k), x + k));
    largest = _mm512_max_epu32(largest, _mm512_and_si512(bits, magnitude));
  }
  const RowStep steps = StepFor(_mm512_reduce_max_epu32(largest));
  to.steps[slot] = steps.step;
  const __m512 inverse = _mm512_set1_ps(steps.inverse);
  const auto codes_at = [&](std::int64_t first) {
    if (!(steps.inverse > 0.0f)) return _mm256_setzero_si256();
    const __m512 values = _mm512_maskz_loadu_ps(some_of(first), x + (first < cols ? first : 0));
    return _mm512_cvtepi32_epi16(_mm512_cvt_roundps_epi32(
        _mm512_mul_ps(values, inverse), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  };
  for (std::int64_t half = 0; half < 2 * cells; ++half) {
    const std::int64_t first = half * kGroup;
    __m512i code =
        _mm512_inserti64x4(_mm512_castsi256_si512(codes_at(first)), codes_at(first + 16), 1);
    const __m512i high = _mm512_srai_epi16(_mm512_add_epi16(code, _mm512_set1_epi16(128)), 8);
    const __m512i low = _mm512_sub_epi16(code, _mm512_slli_epi16(high, kLowBits));
    const __mmask32 least = _mm512_cmpeq_epi16_mask(low, _mm512_set1_epi16(-128));
    const __m512i one = _mm512_set1_epi16(1);
    code = _mm512_mask_add_epi16(code, least, code, one);
    std::int8_t* to_high = to.codes + (half / 2 * 2 * kBlockRows + slot) * kLineBytes;
    to_high += half % 2 * kGroup;
    const auto store = [](std::int8_t* bytes, __m512i values) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), _mm512_cvtepi16_epi8(values));
    };
    store(to_high, high);
    store(to_high + kBlockRows * kLineBytes, _mm512_mask_add_epi16(low, least, low, one));
    StoreSum(_mm512_reduce_add_epi32(_mm512_madd_epi16(code, one)), half, slot, to);
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
