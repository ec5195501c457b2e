// The unit of attention: up to 16 query rows that share a KV head (heads of a group and
// neighbouring tokens of one sequence), against the keys and values of that sequence.
//
// The keys are cut into segments of 512 tokens at fixed positions. A segment is computed by itself
// (flash-style, Dao 2022: running maximum, running total and unnormalised output) and segments are
// merged in rising order, so the bits of a row's result depend neither on the rows beside it, nor
// on how its sequence was cut into steps, nor on how segments were shared out to threads.
#pragma once

#include <cstddef>

#include "kernels/kv_layout.h"

namespace tare::kernels {

inline constexpr int kTileRows = 16;
inline constexpr int kSegmentTokens = 512;
inline constexpr int kSegmentPages = kSegmentTokens / kTokensPerPage;

struct AttentionTile {
  KvHead kv;
  const PageId* pages = nullptr;
  float scale = 1.0f;
  int rows = 0;                    // used of the 16
  int most_tokens = 0;             // largest of `tokens`
  int tokens[kTileRows] = {};      // a row sees tokens [0, tokens)
  const float* q[kTileRows] = {};  // [head_dim] each
  float* out[kTileRows] = {};      // [value_dim] each
};

// State of a tile over some segments: largest score[16], total[16], output[16][padded_value_dim].
inline std::size_t StateFloats(const KvLayout& layout) {
  return 2 * kTileRows + static_cast<std::size_t>(kTileRows * layout.padded_value_dim);
}

}  // namespace tare::kernels
