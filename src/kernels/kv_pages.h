// KV memory: for each layer, pages of kTokensPerPage tokens holding K and V of all KV heads.
//
// KvPages is mechanism only: it knows where a page's numbers are, not who owns a page (that is
// engine/page_pool.h). Thread safety: distinct pages may be written from distinct threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/thread_pool.h"
#include "base/types.h"

namespace tare::kernels {

inline constexpr int kTokensPerPage = 16;

enum class KvType { kF32, kBf16, kInt8 };

struct KvShape {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  KvType type = KvType::kBf16;
  // Latent attention keeps one vector a token, whose leading elements are its value as well: there
  // is no V part then, and attention gives this many numbers a head. 0: V apart, of head_dim.
  int value_dim_in_key = 0;
};

// Bytes one token takes over all layers.
std::size_t KvBytesPerToken(const KvShape& shape);

// The rows of one sequence within a step: rows [first_row, first_row + num_rows) are its tokens at
// positions start, start + 1, ...; token t lives in pages[t / kTokensPerPage].
struct SequenceRows {
  int first_row = 0;
  int num_rows = 0;
  int start = 0;
  std::span<const PageId> pages;
  // Added to a token's place to give the position it is rotated for: a ring context has dropped
  // that many tokens (docs/ENGINE.md). The model's business; attention does not look at it.
  int rotation = 0;
};

class KvPages {
 public:
  // Reserves address space for `pages` pages; memory is touched as pages are first written, in huge
  // pages where the system grants them: a page of a model is many small ones, and each would fault.
  static Result<KvPages> Create(const KvShape& shape, std::uint32_t pages);

  KvPages();
  KvPages(KvPages&&) noexcept;
  KvPages& operator=(KvPages&&) noexcept;
  ~KvPages();

  const KvShape& shape() const;
  std::uint32_t pages() const;

  // Stores k and v of one layer, each [rows, kv_heads * head_dim], for the rows of `sequences`; v
  // is null where values are part of the keys.
  void Write(int layer, std::span<const SequenceRows> sequences, const float* k, const float* v,
             ThreadPool& pool);
  // Copies a page of all layers.
  void Copy(PageId from, PageId to);
  // Gives the memory of `count` neighbouring pages back to the operating system (contents are
  // lost).
  void Discard(PageId first, std::uint32_t count = 1);
  // Bytes that lie in huge pages at present, as the system reports it (/proc/self/smaps); 0 also
  // where it does not.
  std::size_t HugePageBytes() const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Causal attention of one layer for all rows of a step: out[rows, heads * head_dim] (or
// heads * value_dim_in_key) from q[rows, heads * head_dim] (rotary embedding applied) and the pages
// already written for these rows. heads is a multiple of kv_heads; head h reads KV head h / (heads
// / kv_heads).
void Attention(const KvPages& kv, int layer, int heads, float scale,
               std::span<const SequenceRows> sequences, const float* q, float* out,
               ThreadPool& pool);

}  // namespace tare::kernels
