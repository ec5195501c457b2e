// INT8 and INT4 products of few rows on AMX byte tiles (packed_layout.h): INT8 codes straight
// from memory, a tile product with the high and one with the low bytes of the activations; INT4
// codes unpacked so that a single product meets both.
//
// All cells of all panels are one stream, as they lie in memory. In a turn of the loop one cell is
// multiplied, the products of the one before are stored, and those of an older one added to its
// sums; the distance gives stores time before the loads that read them.
#if defined(__x86_64__)
#include "kernels/amx-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::amx {
namespace {

constexpr std::int64_t kAhead = 8192;        // bytes asked for ahead of the cell that is multiplied
constexpr std::int64_t kPanelsOfStrip = 16;  // that blocks of rows meet in turn, from L2
constexpr std::int64_t kTileBytes = 1024;
constexpr int kSums = kBlockRows * kPanelCols;

enum class Codes { kInt8, kInt4, kInt4Minimum };

// Product tiles c0 and c1 of half a cell: the high and low parts of INT8, c0 alone for INT4.
#define TARE_HALF_DOTS(c0, c1, b, half)                                              \
  do {                                                                               \
    const std::int8_t* input = x.codes + (2 * column + (half)) * kTileBytes;         \
    TARE_TILE_LOAD(b, lines + (half) * (kIsInt8 ? 8 : 16) * kLineBytes, kLineBytes); \
    TARE_TILE_ZERO(c0);                                                              \
    TARE_TILE_LOAD(4, input, kLineBytes);                                            \
    if constexpr (kCodes == Codes::kInt4Minimum) {                                   \
      TARE_TILE_DOT_INT8_UINT8(c0, 4, b);                                            \
    } else {                                                                         \
      TARE_TILE_DOT_INT8(c0, 4, b);                                                  \
    }                                                                                \
    if constexpr (kIsInt8) {                                                         \
      TARE_TILE_ZERO(c1);                                                            \
      TARE_TILE_LOAD(5, input + kGroup, kLineBytes);                                 \
      TARE_TILE_DOT_INT8(c1, 5, b);                                                  \
    }                                                                                \
  } while (false)

template <Codes kCodes, int kRows>
void FewRows(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
             std::int64_t end) {
  constexpr bool kIsInt8 = kCodes == Codes::kInt8;
  constexpr bool kMinimum = kCodes == Codes::kInt4Minimum;
  constexpr int kCodeBytes = kIsInt8 ? kInt8Codes : kInt4Codes;
  constexpr int kCellBytes = kCodeBytes + (kMinimum ? 2 : 1) * kLineBytes;
  struct alignas(4096) Buffers {
    std::int32_t products[2][2][2][kSums];  // of a cell: half, part
    std::uint8_t lines[4][2][kTileBytes];   // INT4 codes of a cell: half
  } buffers;
  TileConfig config;
  for (int tile = 0; tile < 4; ++tile) SetTile(config, tile, kRows, kLineBytes);
  for (int tile = 4; tile < 6; ++tile) {
    SetTile(config, tile, kRows, kIsInt8 ? kLineBytes / 2 : kLineBytes);
  }
  for (int tile = 6; tile < 8; ++tile) SetTile(config, tile, kIsInt8 ? 8 : 16, kLineBytes);
  LoadTileConfig(config);
  const std::uint8_t* const first = CellAt(w, begin, 0);
  const std::int64_t total = (end - begin) * w.cells;
  const auto unpack = [&](std::int64_t i) __attribute__((always_inline)) {
    if constexpr (!kIsInt8) {
      auto& lines = buffers.lines[i % 4];
      if (i < total) UnpackInt4<kMinimum>(first + i * kCellBytes, lines[0], lines[1]);
    }
  };
  __m512 acc[kRows];
  std::int64_t panel = begin;
  std::int64_t added = 0;  // cells of `panel` in acc
  const auto add = [&](std::int64_t i) __attribute__((always_inline)) {
    const std::uint8_t* scales = first + i * kCellBytes + kCodeBytes;
    if (added == 0) {
      for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512 scale = LoadScales(scales + half * 32);
      const auto& products = buffers.products[i % 2][half];
      const std::int64_t at = (2 * added + half) * kBlockRows;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        __m512i dot = _mm512_load_si512(products[0] + r * kPanelCols);
        if constexpr (kIsInt8) {
          const __m512i low = _mm512_load_si512(products[1] + r * kPanelCols);
          dot = _mm512_add_epi32(_mm512_slli_epi32(dot, kLowBits), low);
        }
        const __m512 product =
            _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(x.steps[at + r]));
        acc[r] = _mm512_fmadd_ps(product, scale, acc[r]);
        if constexpr (kMinimum) {
          const __m512 minimum = LoadScales(scales + kLineBytes + half * 32);
          acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(x.half_sums[at + r]), minimum, acc[r]);
        }
      }
    }
    if (++added < w.cells) return;
    const __mmask16 mask = PanelMask(w, panel);
    float* y = out.y + panel * kPanelCols;
    for (int r = 0; r < kRows && r < x.rows; ++r) {
      _mm512_mask_storeu_ps(y + r * out.stride, mask, acc[r]);
    }
    added = 0;
    ++panel;
  };
  unpack(0);
  unpack(1);
  std::int64_t column = 0;  // cell of its panel that is multiplied
  for (std::int64_t i = 0; i < total + 2; ++i) {
    const std::uint8_t* cell = first + i * kCellBytes;
#pragma GCC unroll 20
    for (int line = 0; line < kCellBytes; line += kLineBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(cell + kAhead + line), _MM_HINT_T0);
    }
    unpack(i + 2);
    const std::uint8_t* lines = kIsInt8 ? cell : buffers.lines[i % 4][0];
    auto& products = buffers.products[(i + 1) % 2];
    if (i > 0 && i <= total) {
      TARE_TILE_STORE(0, products[0][0], kLineBytes);
      if constexpr (kIsInt8) TARE_TILE_STORE(1, products[0][1], kLineBytes);
    }
    if (i < total) TARE_HALF_DOTS(0, 1, 6, 0);
    if (i > 0 && i <= total) {
      TARE_TILE_STORE(2, products[1][0], kLineBytes);
      if constexpr (kIsInt8) TARE_TILE_STORE(3, products[1][1], kLineBytes);
    }
    if (i < total) TARE_HALF_DOTS(2, 3, 7, 1);
    if (i >= 2) add(i - 2);
    if (++column == w.cells) column = 0;
  }
  ReleaseTiles();
}

#undef TARE_HALF_DOTS

// Rows from the beginning of a later block on.
ActivationCells FromBlock(ActivationCells x, std::int64_t block) {
  const std::int64_t at = block * x.cells * 2 * kBlockRows;
  x.rows -= block * kBlockRows;
  x.codes += at * kLineBytes;
  x.steps += at;
  x.sums += at;
  x.half_sums += at;
  return x;
}

template <Codes kCodes>
void Rows(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
          std::int64_t end) {
  if (x.rows <= kBlockRows / 2) return FewRows<kCodes, kBlockRows / 2>(w, x, out, begin, end);
  if (x.rows <= kBlockRows) return FewRows<kCodes, kBlockRows>(w, x, out, begin, end);
  for (std::int64_t first = begin; first < end; first += kPanelsOfStrip) {
    const std::int64_t past = first + kPanelsOfStrip < end ? first + kPanelsOfStrip : end;
    for (std::int64_t block = 0; block * kBlockRows < x.rows; ++block) {
      const Output y{out.y + block * kBlockRows * out.stride, out.stride};
      FewRows<kCodes, kBlockRows>(w, FromBlock(x, block), y, first, past);
    }
  }
}

}  // namespace

void MatMulFewRows(const WeightCells& w, const ActivationCells& x, const Output& out,
                   std::int64_t begin, std::int64_t end) {
  if (w.type == WeightType::kInt8) return Rows<Codes::kInt8>(w, x, out, begin, end);
  if (w.with_minimum) return Rows<Codes::kInt4Minimum>(w, x, out, begin, end);
  Rows<Codes::kInt4>(w, x, out, begin, end);
}

}  // namespace tare::kernels::amx

#endif  // __x86_64__
