// BF16 products on AMX. Used for any number of rows: one row costs a tile product per KiB of
// weights, which is far faster than memory delivers them, and every row's sum is formed in the same
// order by the same instructions, so results do not depend on the number of rows.
//
// Blocking, from the inside out: 2 x 2 tiles (32 rows x 32 features) accumulate over 8 cells;
// those 32 features of weights (16 KiB) stay in L1 for up to 512 rows; the rows' inputs of 8 cells
// (256 KiB) stay in L2 for 256 features; then the sums (512 KiB) rest in a buffer while the next 8
// cells follow. Sums do not rest in y itself: its rows lie a power of two apart in most models and
// would fight for a few cache sets.
#if defined(__x86_64__)
#include "kernels/amx-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::amx {
namespace {

constexpr std::int64_t kCellsAtOnce = 8;
constexpr std::int64_t kRowsAtOnce = 512;
constexpr std::int64_t kPanelsAtOnce = 16;

struct Chunk {
  std::int64_t first = 0;  // cells [first, past)
  std::int64_t past = 0;
};

// One block of rows as the tiles see it: 16 or fewer rows, any of them missing are computed from
// what the buffer holds there and not stored.
TARE_KERNEL_INLINE const std::uint16_t* RowCells(const ActivationCells& x, std::int64_t block) {
  return x.bf16 + block * x.cells * kBlockRows * kBf16CellDepth;
}

// Sums of 512 rows x 256 features between chunks.
struct alignas(64) Partial {
  float tiles[kRowsAtOnce / kBlockRows][kPanelsAtOnce][kSums];
};

// Everything a block needs to know; `panel` and `block` count from the chunk's first.
struct Work {
  const WeightCells& w;
  const ActivationCells& x;
  Chunk chunk;
  std::int64_t first_panel;
  std::int64_t first_block;
  Partial& partial;

  const std::uint16_t* A(std::int64_t block) const {
    return RowCells(x, first_block + block) + chunk.first * kBlockRows * kBf16CellDepth;
  }
  const std::uint8_t* B(std::int64_t panel) const {
    return CellAt(w, first_panel + panel, chunk.first);
  }
};

// Tile numbers must be literals, hence macros for the four accumulators.
#define TARE_C_IN(tile, block, panel)                                     \
  do {                                                                    \
    if (work.chunk.first == 0) {                                          \
      TARE_TILE_ZERO(tile);                                               \
    } else {                                                              \
      TARE_TILE_LOAD(tile, work.partial.tiles[block][panel], kLineBytes); \
    }                                                                     \
  } while (false)
#define TARE_C_OUT(tile, block, panel)                                   \
  do {                                                                   \
    TARE_TILE_STORE(tile, work.partial.tiles[block][panel], kLineBytes); \
  } while (false)

// 32 rows x 32 features.
inline void Block2x2(const Work& work, std::int64_t block, std::int64_t panel) {
  TARE_C_IN(0, block, panel);
  TARE_C_IN(1, block, panel + 1);
  TARE_C_IN(2, block + 1, panel);
  TARE_C_IN(3, block + 1, panel + 1);
  const std::uint16_t* a0 = work.A(block);
  const std::uint16_t* a1 = work.A(block + 1);
  const std::uint8_t* b0 = work.B(panel);
  const std::uint8_t* b1 = work.B(panel + 1);
  for (std::int64_t c = work.chunk.first; c < work.chunk.past; ++c) {
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
TARE_KERNEL_INLINE void Block1xN(const Work& work, std::int64_t block, std::int64_t panel) {
  TARE_C_IN(0, block, panel);
  if constexpr (kPanels > 1) TARE_C_IN(1, block, panel + 1);
  if constexpr (kPanels > 2) {
    TARE_C_IN(2, block, panel + 2);
    TARE_C_IN(3, block, panel + 3);
  }
  const std::uint16_t* a = work.A(block);
  const std::uint8_t* b = work.B(panel);
  const std::int64_t panel_bytes = work.w.panel_bytes;
  // What comes next in each stream: the following cells or, at the end, the next panels.
  const std::int64_t ahead = work.chunk.past < work.w.cells
                                 ? kCellsAtOnce * kTileBytes
                                 : kPanels * panel_bytes - work.chunk.first * kTileBytes;
  for (std::int64_t c = work.chunk.first; c < work.chunk.past; ++c) {
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

// All blocks [0, blocks) against panels [panel, panel + width), width <= 4.
void RowBlocks(const Work& work, std::int64_t blocks, std::int64_t panel, std::int64_t width) {
  const std::int64_t past = panel + width;
  std::int64_t block = 0;
  for (; block + 2 <= blocks; block += 2) {
    std::int64_t p = panel;
    for (; p + 2 <= past; p += 2) Block2x2(work, block, p);
    if (p < past) {
      Block1xN<1>(work, block, p);
      Block1xN<1>(work, block + 1, p);
    }
  }
  if (block == blocks) return;
  if (width == 4) {
    Block1xN<4>(work, block, panel);
    return;
  }
  std::int64_t p = panel;
  for (; p + 2 <= past; p += 2) Block1xN<2>(work, block, p);
  if (p < past) Block1xN<1>(work, block, p);
}

}  // namespace

void MatMulBf16(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) SetTile(config, tile, 16, kLineBytes);
  LoadTileConfig(config);
  Partial partial;
  const std::int64_t blocks = (x.rows + kBlockRows - 1) / kBlockRows;
  constexpr std::int64_t kBlocksAtOnce = kRowsAtOnce / kBlockRows;
  // One block of rows walks 4 panels at a time, more rows 2, which fit into L1.
  const std::int64_t width = blocks == 1 ? 4 : 2;
  for (std::int64_t block = 0; block < blocks; block += kBlocksAtOnce) {
    const std::int64_t blocks_here = Least(blocks - block, kBlocksAtOnce);
    // A single block streams its 4 panels to the end before it takes the next 4.
    const std::int64_t panels_at_once = blocks == 1 ? width : kPanelsAtOnce;
    for (std::int64_t panel = begin; panel < end; panel += panels_at_once) {
      const std::int64_t panels_here = Least(end - panel, panels_at_once);
      for (std::int64_t cell = 0; cell < w.cells; cell += kCellsAtOnce) {
        const Chunk chunk{cell, Least(cell + kCellsAtOnce, w.cells)};
        const Work work{w, x, chunk, panel, block, partial};
        for (std::int64_t p = 0; p < panels_here; p += width) {
          RowBlocks(work, blocks_here, p, Least(panels_here - p, width));
        }
      }
      for (std::int64_t b = 0; b < blocks_here; ++b) {
        CopyOut(w, x, out, block + b, panel, panel + panels_here, partial.tiles[b][0], kSums);
      }
    }
  }
  ReleaseTiles();
}

}  // namespace tare::kernels::amx

#endif  // __x86_64__
