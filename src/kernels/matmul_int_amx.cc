// INT8 and INT4 products on AMX, for any number of rows: the weights' integer codes are exact in
// BF16, and so are multiplied with BF16 activations. That halves the tile rate of byte products,
// which is not what limits many rows, and costs no quality to speak of; sums come out of the tiles
// as floats. A single row pays with the time of unpacking (docs/PERFORMANCE.md). The order of float
// operations of an output does not depend on the rows beside it: a tile product per 32 inputs (one
// weight scale), whose sums start at 0, then y = fma(product, scale, y), with minima y = fma(sum of
// inputs, minimum, y).
//
// The four inputs k..k+3 whose codes share 32 bits of a line become the pairs (k, k+2) and
// (k+1, k+3) of two tile rows, because that is what shifts give; RoundRowForCodes orders the
// activations alike.
//
// Blocking, from the inside out: 2 panels x 4 cells of weights, unpacked to tiles (16 KiB), stay in
// L1 for up to 512 rows; the rows' inputs of 4 cells (256 KiB) stay in L2 for 256 features; then
// the sums (512 KiB) rest in a buffer while the next 4 cells follow (not in y, whose rows lie a
// power of two apart in most models and would share cache sets).
#if defined(__x86_64__)
#include "kernels/amx-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::amx {
namespace {

constexpr std::int64_t kPanelsAtOnce = 2;    // of a chunk
constexpr std::int64_t kPanelsOfGroup = 16;  // that share a pass over the activations
constexpr std::int64_t kCellsAtOnce = 4;
constexpr std::int64_t kGroupsAtOnce = 2 * kCellsAtOnce;
constexpr std::int64_t kRowsAtOnce = 512;
constexpr std::int64_t kTileBytes = 1024;
constexpr std::int64_t kTileHalves = kTileBytes / 2;
constexpr int kSums = kBlockRows * kPanelCols;

TARE_KERNEL_INLINE std::int64_t Least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// One panel's weights of a chunk as tiles of BF16 codes, with the scale and minimum of each.
struct alignas(4096) Tiles {
  std::uint16_t codes[kGroupsAtOnce][kTileHalves];
  float scales[kGroupsAtOnce][kPanelCols];
  float minima[kGroupsAtOnce][kPanelCols];
};

struct alignas(4096) Products {
  float values[4][kSums];
};

// Sums of 512 rows x 256 features between chunks.
struct alignas(64) Partial {
  float tiles[kRowsAtOnce / kBlockRows][kPanelsOfGroup][kSums];
};

// 4-bit codes: the low 4 bits of each 16-bit lane choose from a table of BF16 numbers. Bit 4 takes
// part in the choice, hence each number twice.
template <bool kMinimum>
TARE_KERNEL_INLINE __m512i CodeTable() {
  alignas(64) std::uint16_t table[32];
  for (int i = 0; i < 32; ++i) {
    const int code = i % 16 - (kMinimum ? 0 : 8);
    table[i] = static_cast<std::uint16_t>(FloatToBits(static_cast<float>(code)) >> 16);
  }
  return _mm512_load_si512(table);
}

template <bool kMinimum>
TARE_KERNEL_INLINE void UnpackInt4(const std::uint8_t* cell, __m512i table, std::uint16_t* first,
                                   std::uint16_t* second) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m512i line = _mm512_load_si512(cell + i * kLineBytes);
    const auto choose = [&](__m512i indices) { return _mm512_permutexvar_epi16(indices, table); };
    _mm512_store_si512(first + i * 64, choose(line));
    _mm512_store_si512(first + i * 64 + 32, choose(_mm512_srli_epi16(line, 8)));
    _mm512_store_si512(second + i * 64, choose(_mm512_srli_epi16(line, 4)));
    _mm512_store_si512(second + i * 64 + 32, choose(_mm512_srli_epi16(line, 12)));
  }
}

// Bytes: moved to the top of 32 bits and converted, they are exact floats of 8 significant bits,
// 2^24 too large, whose upper half is the BF16 number. The scales take the power of two back.
constexpr float kInt8Unit = 0x1p-24f;

TARE_KERNEL_INLINE void UnpackInt8(const std::uint8_t* lines, std::uint16_t* tile) {
  // Byte b of each 32 bits to their top; the rest 0.
  const auto to_top = [](int b) {
    return _mm512_set4_epi32((b + 12) << 24 | 0x808080, (b + 8) << 24 | 0x808080,
                             (b + 4) << 24 | 0x808080, b << 24 | 0x808080);
  };
  const __m512i top[4] = {to_top(0), to_top(1), to_top(2), to_top(3)};
  constexpr __mmask32 kOdd = 0xaaaaaaaau;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m512i line = _mm512_load_si512(lines + i * kLineBytes);
    const auto number = [&](int b) {
      return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_shuffle_epi8(line, top[b])));
    };
    const auto pair = [&](int even, int odd) {
      return _mm512_mask_mov_epi16(_mm512_srli_epi32(number(even), 16), kOdd, number(odd));
    };
    _mm512_store_si512(tile + i * 64, pair(0, 2));
    _mm512_store_si512(tile + i * 64 + 32, pair(1, 3));
  }
}

template <bool kIsInt8, bool kMinimum>
TARE_KERNEL_INLINE void Unpack(const std::uint8_t* cell, std::int64_t cells, std::int64_t bytes,
                               Tiles& tiles) {
  constexpr int kCodeBytes = kIsInt8 ? kInt8Codes : kInt4Codes;
  const __m512i table = CodeTable<kMinimum>();
  const __m512 unit = _mm512_set1_ps(kInt8Unit);
  for (std::int64_t c = 0; c < cells; ++c, cell += bytes) {
    const std::int64_t g = 2 * c;
    if constexpr (kIsInt8) {
      UnpackInt8(cell, tiles.codes[g]);
      UnpackInt8(cell + kInt8Codes / 2, tiles.codes[g + 1]);
    } else {
      UnpackInt4<kMinimum>(cell, table, tiles.codes[g], tiles.codes[g + 1]);
    }
    for (int half = 0; half < 2; ++half) {
      __m512 scales = LoadScales(cell + kCodeBytes + half * 32);
      if constexpr (kIsInt8) scales = _mm512_mul_ps(scales, unit);
      _mm512_store_ps(tiles.scales[g + half], scales);
      if constexpr (kMinimum) {
        _mm512_store_ps(tiles.minima[g + half],
                        LoadScales(cell + kCodeBytes + kLineBytes + half * 32));
      }
    }
  }
}

#define TARE_DOT(c, a, b, group)                                \
  do {                                                          \
    TARE_TILE_ZERO(c);                                          \
    TARE_TILE_LOAD(a, input + (group)*kTileHalves, kLineBytes); \
    TARE_TILE_LOAD(b, w.codes[group], kLineBytes);              \
    TARE_TILE_DOT_BF16(c, a, b);                                \
  } while (false)

// kRows rows x one panel over `groups` (even) groups of a chunk. A group's product is stored while
// the next pair of groups is multiplied, and added one pair later: loads that follow a tile store
// too closely would wait for it.
template <int kRows, bool kMinimum>
TARE_KERNEL_INLINE void Block(const Tiles& w, std::int64_t groups, const std::uint16_t* input,
                              const float* sums, bool is_first, float* total, Products& products) {
  __m512 acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    acc[r] = is_first ? _mm512_setzero_ps() : _mm512_load_ps(total + r * kPanelCols);
  }
  const auto add = [&](int at, std::int64_t group) __attribute__((always_inline)) {
    const __m512 scale = _mm512_load_ps(w.scales[group]);
    const float* product = products.values[at];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      acc[r] = _mm512_fmadd_ps(_mm512_load_ps(product + r * kPanelCols), scale, acc[r]);
      if constexpr (kMinimum) {
        acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(sums[group * kBlockRows + r]),
                                 _mm512_load_ps(w.minima[group]), acc[r]);
      }
    }
  };
  TARE_DOT(0, 4, 6, 0);
  TARE_DOT(1, 5, 7, 1);
  for (std::int64_t g = 0; g < groups; g += 4) {
    TARE_TILE_STORE(0, products.values[0], kLineBytes);
    TARE_TILE_STORE(1, products.values[1], kLineBytes);
    if (g + 2 < groups) {
      TARE_DOT(2, 4, 6, g + 2);
      TARE_DOT(3, 5, 7, g + 3);
    }
    if (g > 0) {
      add(2, g - 2);
      add(3, g - 1);
    }
    if (g + 2 >= groups) {
      add(0, g);
      add(1, g + 1);
      break;
    }
    TARE_TILE_STORE(2, products.values[2], kLineBytes);
    TARE_TILE_STORE(3, products.values[3], kLineBytes);
    if (g + 4 < groups) {
      TARE_DOT(0, 4, 6, g + 4);
      TARE_DOT(1, 5, 7, g + 5);
    }
    add(0, g);
    add(1, g + 1);
    if (g + 4 >= groups) {
      add(2, g + 2);
      add(3, g + 3);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) _mm512_store_ps(total + r * kPanelCols, acc[r]);
}

#undef TARE_DOT

TARE_KERNEL_INLINE void Configure(int rows) {
  TileConfig config;
  for (int tile = 0; tile < 6; ++tile) SetTile(config, tile, rows, kLineBytes);
  for (int tile = 6; tile < 8; ++tile) SetTile(config, tile, 16, kLineBytes);
  LoadTileConfig(config);
}

#define TARE_CELL_DOTS(c0, c1)                                    \
  do {                                                            \
    const std::uint16_t* from = input + 2 * column * kTileHalves; \
    TARE_TILE_ZERO(c0);                                           \
    TARE_TILE_LOAD(4, from, kLineBytes);                          \
    TARE_TILE_LOAD(6, ring.codes[i % 4][0], kLineBytes);          \
    TARE_TILE_DOT_BF16(c0, 4, 6);                                 \
    TARE_TILE_ZERO(c1);                                           \
    TARE_TILE_LOAD(5, from + kTileHalves, kLineBytes);            \
    TARE_TILE_LOAD(7, ring.codes[i % 4][1], kLineBytes);          \
    TARE_TILE_DOT_BF16(c1, 5, 7);                                 \
  } while (false)
#define TARE_CELL_STORE(c0, c1, at)                           \
  do {                                                        \
    TARE_TILE_STORE(c0, products.values[at], kLineBytes);     \
    TARE_TILE_STORE(c1, products.values[at + 1], kLineBytes); \
  } while (false)

// Up to 16 rows: all cells of all panels in one stream, as they lie in memory. In a turn of the
// loop one cell is unpacked, the one before the last is multiplied, and an older one is added to
// its sums; the distance gives stores time before the loads that read them.
template <bool kIsInt8, bool kMinimum, int kRows>
void FewRows(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
             std::int64_t end) {
  constexpr std::int64_t kAhead = 8192;  // bytes asked for ahead of the cell that is unpacked
  constexpr int kCodeBytes = kIsInt8 ? kInt8Codes : kInt4Codes;
  struct alignas(4096) Ring {
    std::uint16_t codes[4][2][kTileHalves];
  } ring;
  Products products;
  Configure(kRows);
  const __m512i table = CodeTable<kMinimum>();
  const __m512 unit = _mm512_set1_ps(kInt8Unit);
  const std::uint8_t* const first = CellAt(w, begin, 0);
  const std::uint16_t* const input = x.code_bf16;
  const std::int64_t total = (end - begin) * w.cells;
  const auto unpack = [&](std::int64_t i) __attribute__((always_inline)) {
    const std::uint8_t* cell = first + i * w.cell_bytes;
    constexpr int kBytes = kCodeBytes + (kMinimum ? 2 : 1) * kLineBytes;
#pragma GCC unroll 20
    for (int line = 0; line < kBytes; line += kLineBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(cell + kAhead + line), _MM_HINT_T0);
    }
    if constexpr (kIsInt8) {
      UnpackInt8(cell, ring.codes[i % 4][0]);
      UnpackInt8(cell + kInt8Codes / 2, ring.codes[i % 4][1]);
    } else {
      UnpackInt4<kMinimum>(cell, table, ring.codes[i % 4][0], ring.codes[i % 4][1]);
    }
  };
  __m512 acc[kRows];
  std::int64_t panel = begin;
  std::int64_t added = 0;  // cells of `panel` in acc
  const auto add = [&](std::int64_t i, int at) __attribute__((always_inline)) {
    const std::uint8_t* scales = first + i * w.cell_bytes + kCodeBytes;
    if (added == 0) {
      for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m512 scale = LoadScales(scales + half * 32);
      if constexpr (kIsInt8) scale = _mm512_mul_ps(scale, unit);
      const float* sums = x.group_sums + (2 * added + half) * kBlockRows;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512 product = _mm512_load_ps(products.values[at + half] + r * kPanelCols);
        acc[r] = _mm512_fmadd_ps(product, scale, acc[r]);
        if constexpr (kMinimum) {
          const __m512 minimum = LoadScales(scales + kLineBytes + half * 32);
          acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(sums[r]), minimum, acc[r]);
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
  if (total > 1) unpack(1);
  std::int64_t column = 0;  // cell of its panel that is multiplied
  for (std::int64_t i = 0; i < total + 2; ++i) {
    if (i + 2 < total) unpack(i + 2);
    if (i % 2 == 0) {
      if (i > 0 && i - 1 < total) TARE_CELL_STORE(2, 3, 2);
      if (i < total) TARE_CELL_DOTS(0, 1);
      if (i >= 2) add(i - 2, 0);
    } else {
      if (i - 1 < total) TARE_CELL_STORE(0, 1, 0);
      if (i < total) TARE_CELL_DOTS(2, 3);
      if (i >= 2) add(i - 2, 2);
    }
    if (++column == w.cells) column = 0;
  }
  ReleaseTiles();
}

#undef TARE_CELL_DOTS
#undef TARE_CELL_STORE

template <bool kIsInt8, bool kMinimum>
void ManyRows(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
              std::int64_t end) {
  Configure(kBlockRows);
  Tiles tiles[kPanelsAtOnce];
  Products products;
  Partial partial;
  const std::int64_t blocks = (x.rows + kBlockRows - 1) / kBlockRows;
  const std::int64_t groups_of_row = x.cells;
  constexpr std::int64_t kBlocksAtOnce = kRowsAtOnce / kBlockRows;
  for (std::int64_t first = 0; first < blocks; first += kBlocksAtOnce) {
    const std::int64_t past = Least(first + kBlocksAtOnce, blocks);
    for (std::int64_t group_begin = begin; group_begin < end; group_begin += kPanelsOfGroup) {
      const std::int64_t group_end = Least(group_begin + kPanelsOfGroup, end);
      for (std::int64_t cell = 0; cell < w.cells; cell += kCellsAtOnce) {
        const std::int64_t cells = Least(w.cells - cell, kCellsAtOnce);
        for (std::int64_t panel = group_begin; panel < group_end; panel += kPanelsAtOnce) {
          const std::int64_t width = Least(group_end - panel, kPanelsAtOnce);
          for (std::int64_t p = 0; p < width; ++p) {
            Unpack<kIsInt8, kMinimum>(CellAt(w, panel + p, cell), cells, w.cell_bytes, tiles[p]);
          }
          for (std::int64_t block = first; block < past; ++block) {
            const std::int64_t at = block * groups_of_row + 2 * cell;
            const std::uint16_t* input = x.code_bf16 + at * kTileHalves;
            for (std::int64_t p = 0; p < width; ++p) {
              float* total = partial.tiles[block - first][panel + p - group_begin];
              Block<kBlockRows, kMinimum>(tiles[p], 2 * cells, input,
                                          x.group_sums + at * kBlockRows, cell == 0, total,
                                          products);
            }
          }
        }
      }
      for (std::int64_t block = first; block < past; ++block) {
        CopyOut(w, x, out, block, group_begin, group_end, partial.tiles[block - first][0]);
      }
    }
  }
  ReleaseTiles();
}

template <bool kIsInt8, bool kMinimum>
void Panels(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
            std::int64_t end) {
  if (x.rows > kBlockRows) return ManyRows<kIsInt8, kMinimum>(w, x, out, begin, end);
  if (x.rows > 8) return FewRows<kIsInt8, kMinimum, 16>(w, x, out, begin, end);
  if (x.rows > 4) return FewRows<kIsInt8, kMinimum, 8>(w, x, out, begin, end);
  if (x.rows > 2) return FewRows<kIsInt8, kMinimum, 4>(w, x, out, begin, end);
  if (x.rows == 2) return FewRows<kIsInt8, kMinimum, 2>(w, x, out, begin, end);
  FewRows<kIsInt8, kMinimum, 1>(w, x, out, begin, end);
}

}  // namespace

void MatMulInt8(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  Panels<true, false>(w, x, out, begin, end);
}

void MatMulInt4(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  if (w.with_minimum) {
    Panels<false, true>(w, x, out, begin, end);
  } else {
    Panels<false, false>(w, x, out, begin, end);
  }
}

void RoundRowForCodes(const float* x, std::int64_t cols, std::int64_t groups, int slot,
                      std::uint16_t* bf16, float* sums) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {
      0,  2,  1,  3,  4,  6,  5,  7,  8,  10, 9,  11, 12, 14, 13, 15,
      16, 18, 17, 19, 20, 22, 21, 23, 24, 26, 25, 27, 28, 30, 29, 31};
  const __m512i order = _mm512_load_si512(kOrder);
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t left = cols - g * kGroup;
    const auto mask = [&](std::int64_t from) {
      const std::int64_t count = left - from;
      return count >= 16  ? static_cast<__mmask16>(0xffff)
             : count <= 0 ? static_cast<__mmask16>(0)
                          : static_cast<__mmask16>((1u << count) - 1u);
    };
    const __m512 low = _mm512_maskz_loadu_ps(mask(0), x + g * kGroup);
    const __m512 high = _mm512_maskz_loadu_ps(mask(16), x + g * kGroup + 16);
    const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    _mm512_store_si512(bf16 + (g * kBlockRows + slot) * kGroup,
                       _mm512_permutexvar_epi16(order, rounded));
    const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(rounded, 16));
    const __m512 odd = _mm512_castsi512_ps(
        _mm512_and_si512(rounded, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
    sums[g * kBlockRows + slot] = _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
  }
}

}  // namespace tare::kernels::amx

#endif  // __x86_64__
