// INT8 and INT4 products on AMX, for 9 rows and more (fewer go to AVX-512 VNNI, which gives the
// same bits: integer sums are exact and the float operations after them follow packed_layout.h).
//
// A weight scale holds for 32 inputs, so a tile product may cover only 32 of them before its
// integers have to be scaled and added to float sums. The inner loop covers 16 rows x 16 features:
// per cell two tile products (one per scale) go to a small buffer, from which AVX-512 scales them
// into 16 registers of sums, while the tiles already work on the next cell.
//
// Blocking, from the inside out: 64 features x 8 cells of weights as signed bytes (32 KiB; INT4 is
// unpacked once into a buffer) stay in L1 for up to 512 rows; the rows' inputs of 8 cells (256 KiB)
// stay in L2 for 256 features; then the sums (512 KiB) rest in a buffer while the next 8 cells
// follow (not in y, whose rows lie a power of two apart in most models and would share cache sets).
#if defined(__x86_64__)
#include "kernels/amx-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::amx {
namespace {

constexpr std::int64_t kPanelsAtOnce = 4;    // of a chunk
constexpr std::int64_t kPanelsOfGroup = 16;  // that share a pass over the activations
constexpr std::int64_t kCellsAtOnce = 8;
constexpr std::int64_t kRowsAtOnce = 512;
constexpr int kTileBytes = 1024;
// Up to 8 rows are one pass of AVX-512 VNNI over the weights, which is as fast or faster: 2048 x
// 2048 by 8 rows on one thread, 0.51 against 0.60 ms (INT8) and 0.35 against 0.49 ms (INT4); by 16
// rows AMX leads, 0.83 against 0.89 and 0.63 against 0.73 ms (Xeon family 6 model 207, 2026-11-30).
constexpr std::int64_t kSmallestRows = 9;

TARE_KERNEL_INLINE std::int64_t Least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// Weights of a chunk: 4 panels x 8 cells.
struct alignas(64) Chunk {
  std::int64_t cells = 0;
  const std::uint8_t* codes[kPanelsAtOnce][kCellsAtOnce];  // signed bytes, one tile each
  alignas(64) float scales[kPanelsAtOnce][kCellsAtOnce][2][kPanelCols];
  alignas(64) float minima[kPanelsAtOnce][kCellsAtOnce][2][kPanelCols];
  alignas(64) std::uint8_t unpacked[kPanelsAtOnce][kCellsAtOnce][kTileBytes];
};

struct alignas(64) Products {
  std::int32_t values[2][kBlockRows * kPanelCols];  // [half][row, feature]
};

// Sums of 512 rows x 256 features between chunks.
struct alignas(64) Partial {
  float tiles[kRowsAtOnce / kBlockRows][kPanelsOfGroup][kBlockRows * kPanelCols];
};

template <bool kIsInt8, bool kMinimum>
TARE_KERNEL_INLINE void Unpack(const WeightCells& w, std::int64_t panel, std::int64_t first_cell,
                               int p, Chunk& chunk) {
  constexpr int kCodeBytes = kIsInt8 ? kInt8Codes : kInt4Codes;
  const __m512i low_bits = _mm512_set1_epi8(0x0f);
  const __m512i eight = _mm512_set1_epi8(8);
  for (std::int64_t c = 0; c < chunk.cells; ++c) {
    const std::uint8_t* cell = CellAt(w, panel, first_cell + c);
    if constexpr (kIsInt8) {
      chunk.codes[p][c] = cell;
    } else {
      std::uint8_t* to = chunk.unpacked[p][c];
      chunk.codes[p][c] = to;
      for (int i = 0; i < 8; ++i) {
        const __m512i both = _mm512_load_si512(cell + i * kLineBytes);
        __m512i low = _mm512_and_si512(both, low_bits);
        __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_bits);
        if constexpr (!kMinimum) {
          low = _mm512_sub_epi8(low, eight);
          high = _mm512_sub_epi8(high, eight);
        }
        _mm512_store_si512(to + i * kLineBytes, low);
        _mm512_store_si512(to + (i + 8) * kLineBytes, high);
      }
    }
    for (int half = 0; half < 2; ++half) {
      _mm512_store_ps(chunk.scales[p][c][half], LoadScales(cell + kCodeBytes + half * 32));
      if constexpr (kMinimum) {
        _mm512_store_ps(chunk.minima[p][c][half],
                        LoadScales(cell + kCodeBytes + kLineBytes + half * 32));
      }
    }
  }
}

// Tile products of one cell. Two sets of tiles alternate between cells.
#define TARE_CELL_DOTS(c0, c1, input, codes)                 \
  do {                                                       \
    TARE_TILE_ZERO(c0);                                      \
    TARE_TILE_LOAD(4, input, kLineBytes);                    \
    TARE_TILE_LOAD(6, codes, kLineBytes);                    \
    TARE_TILE_DOT_INT8(c0, 4, 6);                            \
    TARE_TILE_ZERO(c1);                                      \
    TARE_TILE_LOAD(5, (input) + kGroup, kLineBytes);         \
    TARE_TILE_LOAD(7, (codes) + kTileBytes / 2, kLineBytes); \
    TARE_TILE_DOT_INT8(c1, 5, 7);                            \
  } while (false)
#define TARE_CELL_STORE(c0, c1)                          \
  do {                                                   \
    TARE_TILE_STORE(c0, products.values[0], kLineBytes); \
    TARE_TILE_STORE(c1, products.values[1], kLineBytes); \
  } while (false)

// 16 rows (of which kRows are wanted) x one panel over the chunk's cells.
template <int kRows, bool kMinimum>
TARE_KERNEL_INLINE void Block(const Chunk& chunk, int p, const ActivationCells& x,
                              std::int64_t block, std::int64_t first_cell, float* sums_so_far,
                              const std::uint8_t* ahead, std::int64_t ahead_bytes,
                              Products& products) {
  const std::int64_t at = block * x.cells + first_cell;
  const std::int8_t* input = x.codes + at * kBlockRows * kInt8CellDepth;
  const float* scales = x.scales + at * kBlockRows;
  const float* sums = x.float_sums + at * 2 * kBlockRows;
  __m512 acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    acc[r] = first_cell == 0 ? _mm512_setzero_ps() : _mm512_load_ps(sums_so_far + r * kPanelCols);
  }
  TARE_CELL_DOTS(0, 1, input, chunk.codes[p][0]);
  for (std::int64_t c = 0; c < chunk.cells; ++c) {
    input += kBlockRows * kInt8CellDepth;
    for (std::int64_t line = 0; line < ahead_bytes; line += kLineBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + line), _MM_HINT_T1);
    }
    ahead += ahead_bytes;
    // The next cell's products come before this cell's stores: loads that share their low 12
    // address bits with a store whose data is not there yet would wait for it.
    const bool more = c + 1 < chunk.cells;
    if (c % 2 == 0) {
      if (more) TARE_CELL_DOTS(2, 3, input, chunk.codes[p][c + 1]);
      TARE_CELL_STORE(0, 1);
    } else {
      if (more) TARE_CELL_DOTS(0, 1, input, chunk.codes[p][c + 1]);
      TARE_CELL_STORE(2, 3);
    }
    const auto& dots = products.values;
    const __m512 scale0 = _mm512_load_ps(chunk.scales[p][c][0]);
    const __m512 scale1 = _mm512_load_ps(chunk.scales[p][c][1]);
    __m512 minimum0 = _mm512_setzero_ps(), minimum1 = _mm512_setzero_ps();
    if constexpr (kMinimum) {
      minimum0 = _mm512_load_ps(chunk.minima[p][c][0]);
      minimum1 = _mm512_load_ps(chunk.minima[p][c][1]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512 d0 = _mm512_cvtepi32_ps(_mm512_load_si512(dots[0] + r * kPanelCols));
      const __m512 d1 = _mm512_cvtepi32_ps(_mm512_load_si512(dots[1] + r * kPanelCols));
      __m512 f = _mm512_fmadd_ps(d1, scale1, _mm512_mul_ps(d0, scale0));
      if constexpr (kMinimum) {
        f = _mm512_fmadd_ps(_mm512_set1_ps(sums[r]), minimum0, f);
        f = _mm512_fmadd_ps(_mm512_set1_ps(sums[r + kBlockRows]), minimum1, f);
      }
      acc[r] = _mm512_fmadd_ps(f, _mm512_set1_ps(scales[r]), acc[r]);
    }
    scales += kBlockRows;
    sums += 2 * kBlockRows;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    _mm512_store_ps(sums_so_far + r * kPanelCols, acc[r]);
  }
}

#undef TARE_CELL_DOTS
#undef TARE_CELL_STORE

// Every panel of the chunk against one block of rows; `tiles` are its sums.
template <bool kMinimum>
void BlockRowsOf(const WeightCells& w, const Chunk& chunk, const ActivationCells& x,
                 const Output& out, std::int64_t block, std::int64_t panel, std::int64_t width,
                 std::int64_t first_cell, bool is_first_block,
                 float (*tiles)[kBlockRows * kPanelCols], Products& products) {
  const std::int64_t left = x.rows - block * kBlockRows;
  const std::int64_t rows = left < kBlockRows ? left : kBlockRows;
  const bool is_last_chunk = first_cell + kCellsAtOnce >= w.cells;
  for (std::int64_t p = 0; p < width; ++p) {
    // While the first block of rows is multiplied, memory fetches the weights that follow.
    const std::uint8_t* ahead = is_last_chunk ? CellAt(w, panel + p + kPanelsAtOnce, 0)
                                              : CellAt(w, panel + p, first_cell + kCellsAtOnce);
    const std::int64_t ahead_bytes = is_first_block ? w.cell_bytes : 0;
    if (rows > 8) {
      Block<16, kMinimum>(chunk, static_cast<int>(p), x, block, first_cell, tiles[p], ahead,
                          ahead_bytes, products);
    } else {
      Block<8, kMinimum>(chunk, static_cast<int>(p), x, block, first_cell, tiles[p], ahead,
                         ahead_bytes, products);
    }
    if (!is_last_chunk) continue;
    const __mmask16 mask = PanelMask(w, panel + p);
    float* y = out.y + block * kBlockRows * out.stride + (panel + p) * kPanelCols;
    for (std::int64_t r = 0; r < rows; ++r) {
      _mm512_mask_storeu_ps(y + r * out.stride, mask, _mm512_load_ps(tiles[p] + r * kPanelCols));
    }
  }
}

template <bool kIsInt8, bool kMinimum>
void Panels(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
            std::int64_t end) {
  TileConfig config;
  for (int tile = 0; tile < 4; ++tile) SetTile(config, tile, kBlockRows, kLineBytes);
  for (int tile = 4; tile < 6; ++tile) SetTile(config, tile, kBlockRows, kGroup);
  for (int tile = 6; tile < 8; ++tile) SetTile(config, tile, kGroup / 4, kLineBytes);
  LoadTileConfig(config);
  Chunk chunk;
  Products products;
  Partial partial;
  const std::int64_t blocks = (x.rows + kBlockRows - 1) / kBlockRows;
  constexpr std::int64_t kBlocksAtOnce = kRowsAtOnce / kBlockRows;
  // A single block of rows streams its 4 panels to the end before it takes the next 4.
  const std::int64_t group = blocks == 1 ? kPanelsAtOnce : kPanelsOfGroup;
  for (std::int64_t first = 0; first < blocks; first += kBlocksAtOnce) {
    const std::int64_t past = Least(first + kBlocksAtOnce, blocks);
    for (std::int64_t group_begin = begin; group_begin < end; group_begin += group) {
      const std::int64_t group_end = Least(group_begin + group, end);
      for (std::int64_t cell = 0; cell < w.cells; cell += kCellsAtOnce) {
        chunk.cells = Least(w.cells - cell, kCellsAtOnce);
        for (std::int64_t panel = group_begin; panel < group_end; panel += kPanelsAtOnce) {
          const std::int64_t width = Least(group_end - panel, kPanelsAtOnce);
          for (std::int64_t p = 0; p < width; ++p) {
            Unpack<kIsInt8, kMinimum>(w, panel + p, cell, static_cast<int>(p), chunk);
          }
          for (std::int64_t block = first; block < past; ++block) {
            BlockRowsOf<kMinimum>(w, chunk, x, out, block, panel, width, cell, block == first,
                                  partial.tiles[block - first] + (panel - group_begin), products);
          }
        }
      }
    }
  }
  ReleaseTiles();
}

}  // namespace

void MatMulInt8(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  if (x.rows < kSmallestRows) {
    avx512::MatMulInt8(w, x, out, begin, end);
  } else {
    Panels<true, false>(w, x, out, begin, end);
  }
}

void MatMulInt4(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  if (x.rows < kSmallestRows) {
    avx512::MatMulInt4(w, x, out, begin, end);
  } else if (w.with_minimum) {
    Panels<false, true>(w, x, out, begin, end);
  } else {
    Panels<false, false>(w, x, out, begin, end);
  }
}

}  // namespace tare::kernels::amx

#endif  // __x86_64__
