// INT8 and INT4 products with AVX2, which has no instruction for whole dot products: maddubs gives
// sums of two byte products as 16 bits, madd widens them.
//
// INT8 takes |w| as the unsigned operand and gives its sign to the activation's bytes, which are at
// most 127: 128 * 127 * 2 fits 16 bits. INT4 codes are unsigned already, and 8 lines of 15 * 127 *
// 2 fit 16 bits.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/activation_codes-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::avx2 {
namespace {

constexpr int kHalf = 8;  // features of a 256-bit register

enum class Codes { kInt8, kInt4, kInt4Minimum };

TARE_KERNEL_INLINE __m256i Load(const std::uint8_t* from) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}

TARE_KERNEL_INLINE __m256 Halves(const std::uint8_t* from) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
}

TARE_KERNEL_INLINE __m256i Broadcast(const std::int8_t* four_bytes) {
  std::int32_t value;
  __builtin_memcpy(&value, four_bytes, sizeof value);
  return _mm256_set1_epi32(value);
}

// Exact dot products of 32 inputs and 8 features with kRows rows.
template <Codes kCodes, int kRows>
TARE_KERNEL_INLINE void Dots(const std::uint8_t* lines, int half, const std::int8_t* high,
                             const std::int32_t* sums, __m256i* dots) {
  const std::int8_t* const low = high + kBlockRows * kLineBytes;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i dots_high[kRows], dots_low[kRows];
  for (int r = 0; r < kRows; ++r) dots_high[r] = dots_low[r] = _mm256_setzero_si256();
  if constexpr (kCodes == Codes::kInt8) {
    lines += half * 8 * kLineBytes;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m256i w = Load(lines + i * kLineBytes);
      const __m256i magnitude = _mm256_abs_epi8(w);
      const auto products = [&](const std::int8_t* four) __attribute__((always_inline)) {
        return _mm256_madd_epi16(
            _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(Broadcast(four), w)), ones);
      };
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const int from = r * kLineBytes + i * 4;
        dots_high[r] = _mm256_add_epi32(dots_high[r], products(high + from));
        dots_low[r] = _mm256_add_epi32(dots_low[r], products(low + from));
      }
    }
  } else {
    const __m256i low_bits = _mm256_set1_epi8(0x0f);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      __m256i w = Load(lines + i * kLineBytes);
      w = _mm256_and_si256(half == 0 ? w : _mm256_srli_epi16(w, 4), low_bits);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const int from = r * kLineBytes + i * 4;
        dots_high[r] =
            _mm256_add_epi16(dots_high[r], _mm256_maddubs_epi16(w, Broadcast(high + from)));
        dots_low[r] = _mm256_add_epi16(dots_low[r], _mm256_maddubs_epi16(w, Broadcast(low + from)));
      }
    }
    for (int r = 0; r < kRows; ++r) {
      dots_high[r] = _mm256_madd_epi16(dots_high[r], ones);
      dots_low[r] = _mm256_madd_epi16(dots_low[r], ones);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    dots[r] = _mm256_add_epi32(_mm256_slli_epi32(dots_high[r], kLowBits), dots_low[r]);
    if constexpr (kCodes == Codes::kInt4) {
      dots[r] = _mm256_add_epi32(dots[r], _mm256_slli_epi32(_mm256_set1_epi32(sums[r]), 3));
    }
  }
}

// Sums of 8 features: of the even ones, then of the odd ones.
struct Totals {
  __m256i even = _mm256_setzero_si256();
  __m256i odd = _mm256_setzero_si256();
};

TARE_KERNEL_INLINE void AddProducts(__m256i a, __m256i b, Totals& to) {
  to.even = _mm256_add_epi64(to.even, _mm256_mul_epi32(a, b));
  to.odd = _mm256_add_epi64(to.odd,
                            _mm256_mul_epi32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32)));
}

template <Codes kCodes, int kRows>
TARE_KERNEL_INLINE void PanelRows(const WeightCells& w, const ActivationCells& x, const Output& out,
                                  std::int64_t panel, std::int64_t row) {
  constexpr int kCodeBytes = kCodes == Codes::kInt8 ? kInt8Codes : kInt4Codes;
  const int slot = static_cast<int>(row % kBlockRows);
  const std::int64_t first_cell = row / kBlockRows * x.cells;
  const std::uint8_t* cell = w.data + panel * w.panel_bytes;
  const auto* units = reinterpret_cast<const float*>(cell + w.cells * w.cell_bytes);
  alignas(32) float inverse[kPanelCols];
  for (int j = 0; j < kPanelCols; ++j) inverse[j] = InverseUnit(units[j]);
  const auto in_units = [&](const std::uint8_t* halves, int part) __attribute__((always_inline)) {
    return _mm256_cvtps_epi32(
        _mm256_mul_ps(Halves(halves), _mm256_load_ps(inverse + part * kHalf)));
  };
  Totals totals[kRows][2];
  for (std::int64_t c = 0; c < w.cells; ++c, cell += w.cell_bytes) {
    const std::int8_t* codes = x.codes + ((first_cell + c) * 2 * kBlockRows + slot) * kLineBytes;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const std::int32_t* sums = x.sums + ((first_cell + c) * 2 + half) * kBlockRows + slot;
#pragma GCC unroll 2
      for (int part = 0; part < 2; ++part) {  // features 0..7, then 8..15
        __m256i dots[kRows];
        Dots<kCodes, kRows>(cell + part * kHalf * 4, half, codes + half * kGroup, sums, dots);
        const std::uint8_t* scale = cell + kCodeBytes + half * 32 + part * kHalf * 2;
        const __m256i factor = in_units(scale, part);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          AddProducts(dots[r], factor, totals[r][part]);
          if constexpr (kCodes == Codes::kInt4Minimum) {
            AddProducts(in_units(scale + kLineBytes, part), _mm256_set1_epi32(-sums[r]),
                        totals[r][part]);
          }
        }
      }
    }
  }
  const std::int64_t first = panel * kPanelCols;
  const std::int64_t left = w.rows - first;
  for (int r = 0; r < kRows; ++r) {
    alignas(32) std::int64_t sums[2][kPanelCols / 2];  // of even, of odd features
    for (int part = 0; part < 2; ++part) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(sums[0] + part * 4), totals[r][part].even);
      _mm256_store_si256(reinterpret_cast<__m256i*>(sums[1] + part * 4), totals[r][part].odd);
    }
    const float step = x.steps[row / kBlockRows * kBlockRows + slot + r];
    float* y = out.y + (row + r) * out.stride + first;
    for (int j = 0; j < kPanelCols && j < left; ++j) {
      y[j] = static_cast<float>(sums[j % 2][j / 2]) * (units[j] * step);
    }
  }
}

template <Codes kCodes>
TARE_KERNEL_INLINE void Panels(const WeightCells& w, const ActivationCells& x, const Output& out,
                               std::int64_t begin, std::int64_t end) {
  for (std::int64_t panel = begin; panel < end; ++panel) {
    std::int64_t row = 0;
    for (; row + 4 <= x.rows; row += 4) PanelRows<kCodes, 4>(w, x, out, panel, row);
    if (row + 2 <= x.rows) {
      PanelRows<kCodes, 2>(w, x, out, panel, row);
      row += 2;
    }
    if (row < x.rows) PanelRows<kCodes, 1>(w, x, out, panel, row);
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

}  // namespace tare::kernels::avx2

#endif  // __x86_64__
