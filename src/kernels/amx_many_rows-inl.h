// Products of many rows on AMX, what they have in common: how the work is cut so that weights,
// inputs and sums stay in the caches they fit.
//
// From the inside out: 4 panels x 2 cells of weights, unpacked to tiles (16 KiB), stay in L1 for up
// to 512 rows; the rows' inputs of 2 cells (128 KiB as bytes, 256 KiB as BF16) stay in L2 for 256
// features; then the sums (512 KiB) rest in a buffer while the next 2 cells follow (not in y, whose
// rows lie a power of two apart in most models and would share cache sets).
#pragma once

#include "kernels/amx-inl.h"

namespace tare::kernels {

inline constexpr std::int64_t kPanelsAtOnce = 4;    // of a chunk
inline constexpr std::int64_t kPanelsOfGroup = 16;  // that share a pass over the activations
inline constexpr std::int64_t kCellsAtOnce = 2;
inline constexpr std::int64_t kGroupsAtOnce = 2 * kCellsAtOnce;
inline constexpr std::int64_t kRowsAtOnce = 512;
inline constexpr std::int64_t kTileBytes = 1024;
inline constexpr int kSums = kBlockRows * kPanelCols;  // of a block of rows and a panel

// A chunk of the work: some panels x some cells, for blocks [first, past) of rows.
struct ManyRowsChunk {
  std::int64_t panels;
  std::int64_t cell, cells;  // the first one, and how many
  std::int64_t first, past;
  float (*totals)[kSums];  // of block `first`; those of the next lie kPanelsOfGroup further
};

// Calls unpack(cell bytes, number of cells, tiles) for each panel of a chunk, then multiply(tiles
// of the panels, chunk), which adds to the chunk's totals (or begins them where its cell is 0).
template <typename Tiles, typename Unpack, typename Multiply>
TARE_KERNEL_INLINE void ForManyRows(const WeightCells& w, const ActivationCells& x,
                                    const Output& out, std::int64_t begin, std::int64_t end,
                                    const Unpack& unpack, const Multiply& multiply) {
  struct alignas(64) Partial {
    float tiles[kRowsAtOnce / kBlockRows][kPanelsOfGroup][kSums];
  };
  const auto least = [](std::int64_t a, std::int64_t b) { return a < b ? a : b; };
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) SetTile(config, tile, 16, kLineBytes);
  LoadTileConfig(config);
  Tiles tiles[kPanelsAtOnce];
  Partial partial;
  const std::int64_t blocks = (x.rows + kBlockRows - 1) / kBlockRows;
  constexpr std::int64_t kBlocksAtOnce = kRowsAtOnce / kBlockRows;
  for (std::int64_t first = 0; first < blocks; first += kBlocksAtOnce) {
    const std::int64_t past = least(first + kBlocksAtOnce, blocks);
    for (std::int64_t group_begin = begin; group_begin < end; group_begin += kPanelsOfGroup) {
      const std::int64_t group_end = least(group_begin + kPanelsOfGroup, end);
      for (std::int64_t cell = 0; cell < w.cells; cell += kCellsAtOnce) {
        const std::int64_t cells = least(w.cells - cell, kCellsAtOnce);
        for (std::int64_t panel = group_begin; panel < group_end; panel += kPanelsAtOnce) {
          const std::int64_t panels = least(group_end - panel, kPanelsAtOnce);
          for (std::int64_t p = 0; p < panels; ++p) {
            unpack(CellAt(w, panel + p, cell), cells, tiles[p]);
          }
          multiply(tiles, ManyRowsChunk{panels, cell, cells, first, past,
                                        partial.tiles[0] + (panel - group_begin)});
        }
      }
      for (std::int64_t block = first; block < past; ++block) {
        CopyOut(w, x, out, block, group_begin, group_end, partial.tiles[block - first][0]);
      }
    }
  }
  ReleaseTiles();
}

}  // namespace tare::kernels
