#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/aligned_buffer.h"
#include "kernels/kernel_table.h"
#include "kernels/kv_impl.h"

namespace tare::kernels {
namespace {

int Segments(const AttentionTile& tile) {
  return (tile.most_tokens + kSegmentTokens - 1) / kSegmentTokens;
}

// Scratch of the calling thread, kept between calls.
float* ThreadStates(std::size_t floats) {
  thread_local AlignedBuffer states;
  states.Reserve(floats * sizeof(float));
  return states.as<float>();
}

// Cuts every sequence's rows, folded with the heads that share a KV head, into tiles of 16.
std::vector<AttentionTile> MakeTiles(const KvPages::Impl& impl, int layer, int heads, float scale,
                                     std::span<const SequenceRows> sequences, const float* q,
                                     float* out) {
  const int group = heads / impl.shape.kv_heads;
  const auto head_dim = static_cast<std::size_t>(impl.layout.head_dim);
  const auto value_dim = static_cast<std::size_t>(impl.layout.value_dim);
  std::vector<AttentionTile> tiles;
  for (const SequenceRows& rows : sequences) {
    if (rows.num_rows == 0) continue;
    TARE_CHECK(static_cast<std::size_t>((rows.start + rows.num_rows - 1) / kTokensPerPage) <
               rows.pages.size());
    for (int kv_head = 0; kv_head < impl.shape.kv_heads; ++kv_head) {
      for (int first = 0; first < rows.num_rows * group; first += kTileRows) {
        AttentionTile& tile = tiles.emplace_back();
        tile.kv = KvHead{&impl.layout, impl.HeadAt(PageId{0}, layer, kv_head)};
        tile.pages = rows.pages.data();
        tile.scale = scale;
        tile.rows = std::min(kTileRows, rows.num_rows * group - first);
        for (int i = 0; i < tile.rows; ++i) {
          const int row = (first + i) / group;
          const int head = kv_head * group + (first + i) % group;
          const std::size_t at =
              static_cast<std::size_t>(rows.first_row + row) * static_cast<std::size_t>(heads) +
              static_cast<std::size_t>(head);
          tile.q[i] = q + at * head_dim;
          tile.out[i] = out + at * value_dim;
          tile.tokens[i] = rows.start + row + 1;
        }
        tile.most_tokens = tile.tokens[tile.rows - 1];
      }
    }
  }
  return tiles;
}

// One thread takes all segments of a tile.
void AttendWhole(const KernelTable& kernels, const AttentionTile& tile) {
  const std::size_t floats = StateFloats(*tile.kv.layout);
  float* state = ThreadStates(2 * floats);
  kernels.attend_segment(tile, 0, state);
  for (int segment = 1; segment < Segments(tile); ++segment) {
    kernels.attend_segment(tile, segment, state + floats);
    kernels.merge_states(tile, state, state + floats);
  }
  kernels.finish_tile(tile, state);
}

// Few tiles over long sequences: segments are shared out, then merged.
void AttendSplit(const KernelTable& kernels, const std::vector<AttentionTile>& tiles,
                 ThreadPool& pool) {
  struct Piece {
    const AttentionTile* tile;
    int segment;
  };
  std::vector<Piece> pieces;
  std::vector<std::size_t> first_piece;
  for (const AttentionTile& tile : tiles) {
    first_piece.push_back(pieces.size());
    for (int segment = 0; segment < Segments(tile); ++segment) pieces.push_back({&tile, segment});
  }
  const std::size_t floats = StateFloats(*tiles[0].kv.layout);
  float* states = ThreadStates(floats * pieces.size());
  pool.ParallelFor(pieces.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t p = begin; p < end; ++p) {
      kernels.attend_segment(*pieces[p].tile, pieces[p].segment, states + p * floats);
    }
  });
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    float* state = states + first_piece[t] * floats;
    for (int segment = 1; segment < Segments(tiles[t]); ++segment) {
      kernels.merge_states(tiles[t], state, state + static_cast<std::size_t>(segment) * floats);
    }
    kernels.finish_tile(tiles[t], state);
  }
}

}  // namespace

void Attention(const KvPages& kv, int layer, int heads, float scale,
               std::span<const SequenceRows> sequences, const float* q, float* out,
               ThreadPool& pool) {
  const KvPages::Impl& impl = kv.impl();
  TARE_CHECK(heads > 0 && heads % impl.shape.kv_heads == 0);
  std::vector<AttentionTile> tiles = MakeTiles(impl, layer, heads, scale, sequences, q, out);
  if (tiles.empty()) return;
  // Longest first: whoever is free takes the next, and the short ones even out the end.
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const auto& a, const auto& b) { return a.most_tokens > b.most_tokens; });
  const KernelTable& kernels = Kernels();
  const auto threads = static_cast<std::size_t>(pool.size());
  if (threads > 1 && tiles.size() < 4 * threads && Segments(tiles[0]) > 1) {
    AttendSplit(kernels, tiles, pool);
    return;
  }
  const std::size_t grain = std::max<std::size_t>(1, tiles.size() / (16 * threads));
  pool.ParallelFor(tiles.size(), grain, [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = begin; t < end; ++t) AttendWhole(kernels, tiles[t]);
  });
}

}  // namespace tare::kernels
