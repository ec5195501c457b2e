// BF16 products on AMX. Used for any number of rows: one row costs a tile product per KiB of
// weights, which is far faster than memory delivers them, and every row's sum is formed in the same
// order by the same instructions, so results do not depend on the number of rows.
//
// Blocking: 2 x 2 tiles (32 rows x 32 features) accumulate over 16 cells; then the sums rest in y
// while the next 16 cells follow. 32 features of weights (32 KiB) stay in L1 for all rows; up to
// 512 rows of activations (512 KiB per 16 cells) come from L2.
#include "kernels/amx-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::amx {
namespace {

constexpr std::int64_t kCellsAtOnce = 16;
constexpr std::int64_t kRowsAtOnce = 512;
constexpr std::int64_t kTileBytes = 1024;

struct Chunk {
  std::int64_t first = 0;  // cells [first, past)
  std::int64_t past = 0;
};

// One block of rows as the tiles see it: 16 or fewer rows, any of them missing are computed from
// what the buffer holds there and not stored.
TARE_KERNEL_INLINE const std::uint16_t* RowCells(const ActivationCells& x, std::int64_t block) {
  return x.bf16 + block * x.cells * kBlockRows * kBf16CellDepth;
}

struct alignas(64) Scratch {
  float values[kBlockRows * kPanelCols];
};

TARE_KERNEL_INLINE bool IsWhole(const WeightCells& w, const ActivationCells& x, std::int64_t block,
                                std::int64_t panel) {
  return (block + 1) * kBlockRows <= x.rows && (panel + 1) * kPanelCols <= w.rows;
}

// y to scratch and back for tiles that hang over the edge of y.
TARE_KERNEL_INLINE void CopyIn(const WeightCells& w, const ActivationCells& x, const Output& out,
                               std::int64_t block, std::int64_t panel, Scratch& scratch) {
  const __mmask16 mask = PanelMask(w, panel);
  const std::int64_t left = x.rows - block * kBlockRows;
  const float* y = out.y + block * kBlockRows * out.stride + panel * kPanelCols;
  for (std::int64_t r = 0; r < kBlockRows && r < left; ++r) {
    _mm512_store_ps(scratch.values + r * kPanelCols,
                    _mm512_maskz_loadu_ps(mask, y + r * out.stride));
  }
}
TARE_KERNEL_INLINE void CopyOut(const WeightCells& w, const ActivationCells& x, const Output& out,
                                std::int64_t block, std::int64_t panel, const Scratch& scratch) {
  const __mmask16 mask = PanelMask(w, panel);
  const std::int64_t left = x.rows - block * kBlockRows;
  float* y = out.y + block * kBlockRows * out.stride + panel * kPanelCols;
  for (std::int64_t r = 0; r < kBlockRows && r < left; ++r) {
    _mm512_mask_storeu_ps(y + r * out.stride, mask,
                          _mm512_load_ps(scratch.values + r * kPanelCols));
  }
}

// Tile numbers must be literals, hence macros for the four accumulators.
#define TARE_C_IN(tile, block, panel)                                                    \
  do {                                                                                   \
    if (chunk.first == 0) {                                                              \
      TARE_TILE_ZERO(tile);                                                              \
    } else if (IsWhole(w, x, block, panel)) {                                            \
      TARE_TILE_LOAD(tile, out.y + (block)*kBlockRows * out.stride + (panel)*kPanelCols, \
                     out.stride * 4);                                                    \
    } else {                                                                             \
      CopyIn(w, x, out, block, panel, scratch);                                          \
      TARE_TILE_LOAD(tile, scratch.values, kLineBytes);                                  \
    }                                                                                    \
  } while (false)
#define TARE_C_OUT(tile, block, panel)                                                    \
  do {                                                                                    \
    if (IsWhole(w, x, block, panel)) {                                                    \
      TARE_TILE_STORE(tile, out.y + (block)*kBlockRows * out.stride + (panel)*kPanelCols, \
                      out.stride * 4);                                                    \
    } else {                                                                              \
      TARE_TILE_STORE(tile, scratch.values, kLineBytes);                                  \
      CopyOut(w, x, out, block, panel, scratch);                                          \
    }                                                                                     \
  } while (false)

// 32 rows x 32 features.
inline void Block2x2(const WeightCells& w, const ActivationCells& x, const Output& out,
                     std::int64_t block, std::int64_t panel, Chunk chunk, Scratch& scratch) {
  TARE_C_IN(0, block, panel);
  TARE_C_IN(1, block, panel + 1);
  TARE_C_IN(2, block + 1, panel);
  TARE_C_IN(3, block + 1, panel + 1);
  const std::uint16_t* a0 = RowCells(x, block) + chunk.first * kBlockRows * kBf16CellDepth;
  const std::uint16_t* a1 = RowCells(x, block + 1) + chunk.first * kBlockRows * kBf16CellDepth;
  const std::uint8_t* b0 = CellAt(w, panel, chunk.first);
  const std::uint8_t* b1 = CellAt(w, panel + 1, chunk.first);
  for (std::int64_t c = chunk.first; c < chunk.past; ++c) {
    TARE_TILE_LOAD(4, a0, kLineBytes);
    TARE_TILE_LOAD(6, b0, kLineBytes);
    TARE_TILE_LOAD(7, b1, kLineBytes);
    TARE_TILE_LOAD(5, a1, kLineBytes);
    TARE_TILE_DOT_BF16(0, 4, 6);
    TARE_TILE_DOT_BF16(1, 4, 7);
    TARE_TILE_DOT_BF16(2, 5, 6);
    TARE_TILE_DOT_BF16(3, 5, 7);
    a0 += kBlockRows * kBf16CellDepth;
    a1 += kBlockRows * kBf16CellDepth;
    b0 += kTileBytes;
    b1 += kTileBytes;
  }
  TARE_C_OUT(0, block, panel);
  TARE_C_OUT(1, block, panel + 1);
  TARE_C_OUT(2, block + 1, panel);
  TARE_C_OUT(3, block + 1, panel + 1);
}

// 16 rows x up to 64 features: kPanels weight streams share each load of activations.
template <int kPanels>
TARE_KERNEL_INLINE void Block1xN(const WeightCells& w, const ActivationCells& x, const Output& out,
                                 std::int64_t block, std::int64_t panel, Chunk chunk,
                                 Scratch& scratch) {
  TARE_C_IN(0, block, panel);
  if constexpr (kPanels > 1) TARE_C_IN(1, block, panel + 1);
  if constexpr (kPanels > 2) {
    TARE_C_IN(2, block, panel + 2);
    TARE_C_IN(3, block, panel + 3);
  }
  const std::uint16_t* a = RowCells(x, block) + chunk.first * kBlockRows * kBf16CellDepth;
  const std::uint8_t* b = CellAt(w, panel, chunk.first);
  const std::int64_t panel_bytes = w.cells * w.cell_bytes;
  // What comes next in each stream: the following cells or, at the end, the next panels.
  const std::int64_t ahead = chunk.past < w.cells
                                 ? kCellsAtOnce * kTileBytes
                                 : kPanels * panel_bytes - chunk.first * kTileBytes;
  for (std::int64_t c = chunk.first; c < chunk.past; ++c) {
    for (int p = 0; p < kPanels; ++p) {
      for (int line = 0; line < kTileBytes; line += kLineBytes) {
        _mm_prefetch(reinterpret_cast<const char*>(b + p * panel_bytes + ahead + line),
                     _MM_HINT_T1);
      }
    }
    TARE_TILE_LOAD(4, a, kLineBytes);
    TARE_TILE_LOAD(6, b, kLineBytes);
    TARE_TILE_DOT_BF16(0, 4, 6);
    if constexpr (kPanels > 1) {
      TARE_TILE_LOAD(7, b + panel_bytes, kLineBytes);
      TARE_TILE_DOT_BF16(1, 4, 7);
    }
    if constexpr (kPanels > 2) {
      TARE_TILE_LOAD(6, b + 2 * panel_bytes, kLineBytes);
      TARE_TILE_DOT_BF16(2, 4, 6);
      TARE_TILE_LOAD(7, b + 3 * panel_bytes, kLineBytes);
      TARE_TILE_DOT_BF16(3, 4, 7);
    }
    a += kBlockRows * kBf16CellDepth;
    b += kTileBytes;
  }
  TARE_C_OUT(0, block, panel);
  if constexpr (kPanels > 1) TARE_C_OUT(1, block, panel + 1);
  if constexpr (kPanels > 2) {
    TARE_C_OUT(2, block, panel + 2);
    TARE_C_OUT(3, block, panel + 3);
  }
}

#undef TARE_C_IN
#undef TARE_C_OUT

// All row blocks [block, past) against panels [panel, panel + width), width <= 4.
void RowBlocks(const WeightCells& w, const ActivationCells& x, const Output& out,
               std::int64_t block, std::int64_t past, std::int64_t panel, std::int64_t width,
               Chunk chunk, Scratch& scratch) {
  for (; block + 2 <= past; block += 2) {
    std::int64_t p = 0;
    for (; p + 2 <= width; p += 2) Block2x2(w, x, out, block, panel + p, chunk, scratch);
    if (p < width) {
      Block1xN<1>(w, x, out, block, panel + p, chunk, scratch);
      Block1xN<1>(w, x, out, block + 1, panel + p, chunk, scratch);
    }
  }
  if (block == past) return;
  if (width == 4) {
    Block1xN<4>(w, x, out, block, panel, chunk, scratch);
    return;
  }
  std::int64_t p = 0;
  for (; p + 2 <= width; p += 2) Block1xN<2>(w, x, out, block, panel + p, chunk, scratch);
  if (p < width) Block1xN<1>(w, x, out, block, panel + p, chunk, scratch);
}

}  // namespace

void MatMulBf16(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) SetTile(config, tile, 16, kLineBytes);
  LoadTileConfig(config);
  Scratch scratch;
  const std::int64_t blocks = (x.rows + kBlockRows - 1) / kBlockRows;
  constexpr std::int64_t kBlocksAtOnce = kRowsAtOnce / kBlockRows;
  // One block of rows walks 4 panels at a time, more rows 2, which fit into L1.
  const std::int64_t width = blocks == 1 ? 4 : 2;
  for (std::int64_t block = 0; block < blocks; block += kBlocksAtOnce) {
    const std::int64_t past = block + kBlocksAtOnce < blocks ? block + kBlocksAtOnce : blocks;
    for (std::int64_t panel = begin; panel < end; panel += width) {
      const std::int64_t here = end - panel < width ? end - panel : width;
      for (std::int64_t cell = 0; cell < w.cells; cell += kCellsAtOnce) {
        const Chunk chunk{cell, cell + kCellsAtOnce < w.cells ? cell + kCellsAtOnce : w.cells};
        RowBlocks(w, x, out, block, past, panel, here, chunk, scratch);
      }
    }
  }
  ReleaseTiles();
}

}  // namespace tare::kernels::amx
