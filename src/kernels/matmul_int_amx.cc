// INT8 and INT4 products on AMX, by number of rows; all give the bits that packed_layout.h
// prescribes.
//
// A few rows are VNNI's. Up to 16 take the weights as byte tiles, INT8 codes straight from memory:
// for each half of a cell a tile product with the high and one with the low bytes of the
// activations.
//
// More rows take the weights as BF16 tiles, in which codes of 8 bits are exact, and both parts of
// the activations as BF16 with their step applied: two tile products accumulate to the exact dot
// product times the step, which leaves the tile as floats, so that an output needs a single
// multiply-add for 32 inputs. The four inputs k..k+3 whose codes share 32 bits of a line become the
// pairs (k, k+2) and (k+1, k+3) of two tile rows, because that is what shifts give; QuantizeTileRow
// orders the activations alike.
//
// Blocking of many rows, from the inside out: 4 panels x 2 cells of weights, unpacked to tiles (16
// KiB), stay in L1 for up to 512 rows; the rows' inputs of 2 cells (256 KiB) stay in L2 for 256
// features; then the sums (512 KiB) rest in a buffer while the next 2 cells follow (not in y, whose
// rows lie a power of two apart in most models and would share cache sets).
#if defined(__x86_64__)
#include "kernels/amx-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::amx {
namespace {

constexpr std::int64_t kVnniRows = 4;
constexpr std::int64_t kPanelsAtOnce = 4;    // of a chunk
constexpr std::int64_t kPanelsOfGroup = 16;  // that share a pass over the activations
constexpr std::int64_t kCellsAtOnce = 2;
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
  float values[2][kPanelsAtOnce][kSums];
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

// A step of panel p of a block, whose product tile is c: stores the product of the group before,
// begins that of this group, and adds the one before the last to the sums. Loads that follow a tile
// store too closely would wait for it, and so would a tile store for a product just begun.
#define TARE_STEP(c, p)                                                    \
  do {                                                                     \
    if (p >= width) break;                                                 \
    if (group > 0 && group <= groups) {                                    \
      TARE_TILE_STORE(c, products.values[(group - 1) % 2][p], kLineBytes); \
    }                                                                      \
    if (group < groups) {                                                  \
      TARE_TILE_LOAD(2, weights[p].codes[group], kLineBytes);              \
      TARE_TILE_ZERO(c);                                                   \
      TARE_TILE_DOT_BF16(c, 0, 2);                                         \
      TARE_TILE_DOT_BF16(c, 1, 2);                                         \
    }                                                                      \
    if (group >= 2) add(group - 2, p);                                     \
  } while (false)

// A block of 16 rows x up to 4 panels over the groups of a chunk. The two tiles of a group's inputs
// (high and low) meet the weights of all panels.
template <bool kMinimum>
TARE_KERNEL_INLINE void Block(const Tiles* weights, std::int64_t width, std::int64_t groups,
                              const std::uint16_t* input, const float* sums, bool is_first,
                              float (*totals)[kSums], Products& products) {
  const auto add = [&](std::int64_t group, std::int64_t panel) __attribute__((always_inline)) {
    float* total = totals[panel];
    const Tiles& w = weights[panel];
    const float* product = products.values[group % 2][panel];
    const __m512 scale = _mm512_load_ps(w.scales[group]);
    const bool from_zero = is_first && group == 0;
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) {
      const int at = r * kPanelCols;
      __m512 acc = from_zero ? _mm512_setzero_ps() : _mm512_load_ps(total + at);
      acc = _mm512_fmadd_ps(_mm512_load_ps(product + at), scale, acc);
      if constexpr (kMinimum) {
        acc = _mm512_fmadd_ps(_mm512_set1_ps(sums[group * kBlockRows + r]),
                              _mm512_load_ps(w.minima[group]), acc);
      }
      _mm512_store_ps(total + at, acc);
    }
  };
  for (std::int64_t group = 0; group < groups + 2; ++group) {
    if (group < groups) {
      TARE_TILE_LOAD(0, input + group * 2 * kTileHalves, kLineBytes);
      TARE_TILE_LOAD(1, input + (group * 2 + 1) * kTileHalves, kLineBytes);
    }
    TARE_STEP(4, 0);
    TARE_STEP(5, 1);
    TARE_STEP(6, 2);
    TARE_STEP(7, 3);
  }
}

#undef TARE_STEP

// 4-bit codes as signed bytes: of the first half of a cell into 8 lines, of the second into the
// next.
template <bool kMinimum>
TARE_KERNEL_INLINE void UnpackBytes(const std::uint8_t* cell, std::uint8_t* lines) {
  const __m512i low_bits = _mm512_set1_epi8(0x0f);
  const __m512i offset = _mm512_set1_epi8(kMinimum ? 0 : 8);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m512i both = _mm512_load_si512(cell + i * kLineBytes);
    const __m512i first = _mm512_and_si512(both, low_bits);
    const __m512i second = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_bits);
    _mm512_store_si512(lines + i * kLineBytes, _mm512_sub_epi8(first, offset));
    _mm512_store_si512(lines + (i + 8) * kLineBytes, _mm512_sub_epi8(second, offset));
  }
}

// Tiles c0 and c1 = high and low parts of the rows * 8 lines of codes, by way of tile b.
#define TARE_HALF_DOTS(c0, c1, b, half)                            \
  do {                                                             \
    const std::int64_t from = column * kTileBytes + (half)*kGroup; \
    TARE_TILE_LOAD(b, lines + (half)*8 * kLineBytes, kLineBytes);  \
    TARE_TILE_ZERO(c0);                                            \
    TARE_TILE_LOAD(4, x.high + from, kLineBytes);                  \
    TARE_TILE_DOT_INT8(c0, 4, b);                                  \
    TARE_TILE_ZERO(c1);                                            \
    TARE_TILE_LOAD(5, x.low + from, kLineBytes);                   \
    TARE_TILE_DOT_INT8(c1, 5, b);                                  \
  } while (false)

// Up to 16 rows: all cells of all panels in one stream, as they lie in memory. In a turn of the
// loop one cell is multiplied, the products of the one before are stored, and those of an older one
// added to its sums; the distance gives stores time before the loads that read them.
template <bool kIsInt8, bool kMinimum, int kRows>
void FewRows(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
             std::int64_t end) {
  constexpr std::int64_t kAhead = 8192;  // bytes asked for ahead of the cell that is multiplied
  constexpr int kCodeBytes = kIsInt8 ? kInt8Codes : kInt4Codes;
  constexpr int kCellBytes = kCodeBytes + (kMinimum ? 2 : 1) * kLineBytes;
  struct alignas(4096) Buffers {
    std::int32_t products[2][2][2][kSums];  // of a cell: half, part
    std::uint8_t lines[4][kTileBytes];
  } buffers;
  TileConfig config;
  for (int tile = 0; tile < 4; ++tile) SetTile(config, tile, kRows, kLineBytes);
  for (int tile = 4; tile < 6; ++tile) SetTile(config, tile, kRows, kGroup);
  for (int tile = 6; tile < 8; ++tile) SetTile(config, tile, 8, kLineBytes);
  LoadTileConfig(config);
  const std::uint8_t* const first = CellAt(w, begin, 0);
  const std::int64_t total = (end - begin) * w.cells;
  const auto unpack = [&](std::int64_t i) __attribute__((always_inline)) {
    if constexpr (!kIsInt8) {
      if (i < total) UnpackBytes<kMinimum>(first + i * kCellBytes, buffers.lines[i % 4]);
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
        const __m512i high = _mm512_load_si512(products[0] + r * kPanelCols);
        const __m512i low = _mm512_load_si512(products[1] + r * kPanelCols);
        const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high, kLowBits), low);
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
    const std::uint8_t* lines = kIsInt8 ? cell : buffers.lines[i % 4];
    auto& products = buffers.products[(i + 1) % 2];
    if (i > 0 && i <= total) {
      TARE_TILE_STORE(0, products[0][0], kLineBytes);
      TARE_TILE_STORE(1, products[0][1], kLineBytes);
    }
    if (i < total) TARE_HALF_DOTS(0, 1, 6, 0);
    if (i > 0 && i <= total) {
      TARE_TILE_STORE(2, products[1][0], kLineBytes);
      TARE_TILE_STORE(3, products[1][1], kLineBytes);
    }
    if (i < total) TARE_HALF_DOTS(2, 3, 7, 1);
    if (i >= 2) add(i - 2);
    if (++column == w.cells) column = 0;
  }
  ReleaseTiles();
}

#undef TARE_HALF_DOTS

template <bool kIsInt8, bool kMinimum>
void ManyRows(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
              std::int64_t end) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) SetTile(config, tile, 16, kLineBytes);
  LoadTileConfig(config);
  Tiles tiles[kPanelsAtOnce];
  Products products;
  Partial partial;
  const std::int64_t blocks = (x.rows + kBlockRows - 1) / kBlockRows;
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
            const std::int64_t at = 2 * (block * x.cells + cell);
            const std::uint16_t* input = x.tiles + at * 2 * kTileHalves;
            Block<kMinimum>(tiles, width, 2 * cells, input, x.half_sums + at * kBlockRows,
                            cell == 0, partial.tiles[block - first] + (panel - group_begin),
                            products);
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
  if (x.tiles != nullptr) return ManyRows<kIsInt8, kMinimum>(w, x, out, begin, end);
  if (x.rows <= kVnniRows) {
    return (kIsInt8 ? avx512::MatMulInt8 : avx512::MatMulInt4)(w, x, out, begin, end);
  }
  if (x.rows > 8) return FewRows<kIsInt8, kMinimum, 16>(w, x, out, begin, end);
  FewRows<kIsInt8, kMinimum, 8>(w, x, out, begin, end);
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

void QuantizeTileRow(const float* x, std::int64_t cols, std::int64_t cells, int slot,
                     std::uint16_t* tiles, float* half_sums) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {
      0,  2,  1,  3,  4,  6,  5,  7,  8,  10, 9,  11, 12, 14, 13, 15,
      16, 18, 17, 19, 20, 22, 21, 23, 24, 26, 25, 27, 28, 30, 29, 31};
  const __m512i order = _mm512_load_si512(kOrder);
  for (std::int64_t group = 0; group < 2 * cells; ++group) {
    const GroupCodes codes = QuantizeGroup(x, cols, group);
    // Numbers of at most 8 significant bits: the upper halves are all of them.
    const auto store = [&](const __m512i* parts, float step, std::uint16_t* to) {
      const auto upper = [&](__m512i part) {
        const __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(part), _mm512_set1_ps(step));
        return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(value), 16));
      };
      const __m512i both =
          _mm512_inserti64x4(_mm512_castsi256_si512(upper(parts[0])), upper(parts[1]), 1);
      _mm512_store_si512(to, _mm512_permutexvar_epi16(order, both));
    };
    std::uint16_t* to = tiles + (group * 2 * kBlockRows + slot) * kGroup;
    store(codes.high, codes.step * static_cast<float>(1 << kLowBits), to);
    store(codes.low, codes.step, to + kTileHalves);
    half_sums[group * kBlockRows + slot] = static_cast<float>(codes.sum) * codes.step;
  }
}

}  // namespace tare::kernels::amx

#endif  // __x86_64__
