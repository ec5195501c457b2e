// How the numbers of one KV head lie within one page of 16 tokens. A page holds, for each layer and
// then each KV head, a K part and a V part:
//
//   K:  | d0 d1 of t0 | d0 d1 of t1 | ... | d0 d1 of t15 |   d2 d3 ...      F32: one d at a time
//   V:  | t0 t1 of d0 | t0 t1 of d1 | ... | t0 t1 of dD-1 |  t2 t3 ...      F32: one t at a time
//   INT8 only, after each part: 16 float scales, one a token
//
// A line of K is 16 tokens wide and a line of V 16 dimensions wide, each with a pair of neighbours
// along the sum, so that q*K and p*V are both products of BF16 dot-product and AMX instructions
// without moving anything. D is the head's dimension padded with zeros to a multiple of 32.
//
// Where values are the leading dimensions of the keys (latent attention), there is no V part: 576
// numbers a token instead of 1088 are worth more than the time it takes to lay a block of keys out
// as values, which stays below that of reading it from memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_pages.h"

namespace tare::kernels {

inline constexpr int kKvDimStep = 32;

struct KvLayout {
  KvType type = KvType::kBf16;
  int head_dim = 0;
  int padded_dim = 0;
  bool values_in_keys = false;
  int value_dim = 0;  // numbers a head gives
  int padded_value_dim = 0;
  std::size_t part_bytes = 0;   // codes of K or of V
  std::size_t scale_bytes = 0;  // of one part; 0 unless INT8
  std::size_t head_bytes = 0;   // all parts of one head
  std::size_t layer_bytes = 0;
  std::size_t page_bytes = 0;  // all layers, a multiple of 4 KiB
};

KvLayout LayoutOf(const KvShape& shape);

// One head of one layer across all pages; page p's K part starts at base + p * page_bytes.
struct KvHead {
  const KvLayout* layout = nullptr;
  const std::uint8_t* base = nullptr;
};

}  // namespace tare::kernels
