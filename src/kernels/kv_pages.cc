#include "kernels/kv_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/half.h"
#include "kernels/kernel_table.h"
#include "kernels/kv_impl.h"

namespace tare::kernels {
namespace {

constexpr std::size_t kOsPage = 4096;

std::size_t RoundUp(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

int ElementBytes(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 4;
    case KvType::kBf16:
      return 2;
    case KvType::kInt8:
      return 1;
  }
  return 4;
}

// Index of (token, dim) within a K or V part.
std::size_t KIndex(KvType type, int token, int dim) {
  if (type == KvType::kF32) return static_cast<std::size_t>(dim * kTokensPerPage + token);
  return static_cast<std::size_t>((dim / 2 * kTokensPerPage + token) * 2 + dim % 2);
}
std::size_t VIndex(const KvLayout& layout, int token, int dim) {
  if (layout.type == KvType::kF32) {
    return static_cast<std::size_t>(token * layout.padded_dim + dim);
  }
  return static_cast<std::size_t>((token / 2 * layout.padded_dim + dim) * 2 + token % 2);
}

// Stores one token's vector with `index(dim)` as its places.
template <typename Index>
void StoreVector(const KvLayout& layout, std::uint8_t* part, int slot, const float* values,
                 const Index& index) {
  switch (layout.type) {
    case KvType::kF32:
      for (int d = 0; d < layout.head_dim; ++d) {
        reinterpret_cast<float*>(part)[index(d)] = values[d];
      }
      return;
    case KvType::kBf16:
      for (int d = 0; d < layout.head_dim; ++d) {
        reinterpret_cast<std::uint16_t*>(part)[index(d)] = FloatToBf16(values[d]);
      }
      return;
    case KvType::kInt8: {
      float largest = 0.0f;
      for (int d = 0; d < layout.head_dim; ++d) largest = std::max(largest, std::fabs(values[d]));
      const bool silent = largest < 1e-30f;
      const float inverse = silent ? 0.0f : 127.0f / largest;
      for (int d = 0; d < layout.head_dim; ++d) {
        const float code = std::clamp(std::nearbyint(values[d] * inverse), -127.0f, 127.0f);
        part[index(d)] = static_cast<std::uint8_t>(static_cast<std::int8_t>(code));
      }
      reinterpret_cast<float*>(part + layout.part_bytes)[slot] = silent ? 0.0f : largest / 127.0f;
      return;
    }
  }
}

}  // namespace

KvLayout LayoutOf(const KvShape& shape) {
  KvLayout layout;
  layout.type = shape.type;
  layout.head_dim = shape.head_dim;
  const auto padded = [](int dim) { return (dim + kKvDimStep - 1) / kKvDimStep * kKvDimStep; };
  layout.padded_dim = padded(shape.head_dim);
  layout.values_in_keys = shape.value_dim_in_key > 0;
  layout.value_dim = layout.values_in_keys ? shape.value_dim_in_key : shape.head_dim;
  layout.padded_value_dim = padded(layout.value_dim);
  layout.part_bytes = static_cast<std::size_t>(layout.padded_dim) * kTokensPerPage *
                      static_cast<std::size_t>(ElementBytes(shape.type));
  layout.scale_bytes = shape.type == KvType::kInt8 ? kTokensPerPage * sizeof(float) : 0;
  layout.head_bytes = (layout.values_in_keys ? 1 : 2) * (layout.part_bytes + layout.scale_bytes);
  layout.layer_bytes = layout.head_bytes * static_cast<std::size_t>(shape.kv_heads);
  layout.page_bytes = RoundUp(layout.layer_bytes * static_cast<std::size_t>(shape.layers), kOsPage);
  return layout;
}

std::size_t KvBytesPerToken(const KvShape& shape) {
  return LayoutOf(shape).page_bytes / kTokensPerPage;
}

KvPages::Impl::~Impl() {
  if (memory != nullptr) munmap(memory, bytes);
}

Result<KvPages> KvPages::Create(const KvShape& shape, std::uint32_t pages) {
  constexpr int kLargest = 1 << 16;
  for (int dimension : {shape.layers, shape.kv_heads, shape.head_dim}) {
    if (dimension <= 0 || dimension > kLargest) {
      return Fail(ErrorKind::kUnsupported,
                  "KV memory of {} layers, {} heads of {} cannot be laid out", shape.layers,
                  shape.kv_heads, shape.head_dim);
    }
  }
  if (shape.value_dim_in_key < 0 || shape.value_dim_in_key > shape.head_dim) {
    return Fail(ErrorKind::kUnsupported, "values of {} numbers cannot be part of keys of {}",
                shape.value_dim_in_key, shape.head_dim);
  }
  KvPages created;
  Impl& impl = *created.impl_;
  impl.shape = shape;
  impl.pages = pages;
  impl.layout = LayoutOf(shape);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(impl.layout.page_bytes, std::size_t{pages}, &bytes)) {
    return Fail(ErrorKind::kResourceExhausted, "{} KV pages of {} bytes exceed the address space",
                pages, impl.layout.page_bytes);
  }
  if (bytes == 0) return created;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return Fail(ErrorKind::kResourceExhausted,
                "cannot reserve {} MiB for {} KV pages: {}; ask for less KV memory", bytes >> 20,
                pages, std::strerror(errno));
  }
  // Advice only: without huge pages everything works, with more page faults.
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  impl.memory = static_cast<std::uint8_t*>(memory);
  impl.bytes = bytes;
  return created;
}

KvPages::KvPages() : impl_(std::make_unique<Impl>()) {}
KvPages::KvPages(KvPages&&) noexcept = default;
KvPages& KvPages::operator=(KvPages&&) noexcept = default;
KvPages::~KvPages() = default;

const KvShape& KvPages::shape() const { return impl_->shape; }
std::uint32_t KvPages::pages() const { return impl_->pages; }

void KvPages::Write(int layer, std::span<const SequenceRows> sequences, const float* k,
                    const float* v, ThreadPool& pool) {
  // One piece of work is one page of one sequence: neighbouring tokens share cache lines.
  struct Piece {
    const SequenceRows* rows;
    int page;  // index in rows->pages
  };
  std::vector<Piece> pieces;
  for (const SequenceRows& rows : sequences) {
    if (rows.num_rows == 0) continue;
    const int last = (rows.start + rows.num_rows - 1) / kTokensPerPage;
    TARE_CHECK(rows.start >= 0 && static_cast<std::size_t>(last) < rows.pages.size());
    for (int page = rows.start / kTokensPerPage; page <= last; ++page) {
      TARE_CHECK(ToInt(rows.pages[static_cast<std::size_t>(page)]) < impl_->pages);
      pieces.push_back({&rows, page});
    }
  }
  const KvLayout& layout = impl_->layout;
  const std::size_t row_floats =
      static_cast<std::size_t>(impl_->shape.kv_heads) * static_cast<std::size_t>(layout.head_dim);
  const std::size_t v_part = layout.part_bytes + layout.scale_bytes;

  pool.ParallelFor(pieces.size(), 8, [&](std::size_t begin, std::size_t end) {
    for (std::size_t p = begin; p < end; ++p) {
      const SequenceRows& rows = *pieces[p].rows;
      const int page_start = pieces[p].page * kTokensPerPage;
      const int first = std::max(rows.start, page_start);
      const int past = std::min(rows.start + rows.num_rows, page_start + kTokensPerPage);
      const PageId page = rows.pages[static_cast<std::size_t>(pieces[p].page)];
      for (int head = 0; head < impl_->shape.kv_heads; ++head) {
        std::uint8_t* at = impl_->HeadAt(page, layer, head);
        // Kernels multiply whole pages and give unwritten tokens weight 0; what an earlier owner
        // left there must be finite for that, so a page's first token clears it.
        if (first == page_start) std::memset(at, 0, layout.head_bytes);
        for (int position = first; position < past; ++position) {
          const int slot = position - page_start;
          const std::size_t from =
              static_cast<std::size_t>(rows.first_row + position - rows.start) * row_floats +
              static_cast<std::size_t>(head) * static_cast<std::size_t>(layout.head_dim);
          StoreVector(layout, at, slot, k + from,
                      [&](int d) { return KIndex(layout.type, slot, d); });
          if (layout.values_in_keys) continue;
          StoreVector(layout, at + v_part, slot, v + from,
                      [&](int d) { return VIndex(layout, slot, d); });
        }
      }
    }
  });
}

void KvPages::Copy(PageId from, PageId to) {
  TARE_CHECK(ToInt(from) < impl_->pages && ToInt(to) < impl_->pages);
  if (from == to) return;
  std::memcpy(impl_->PageAt(to), impl_->PageAt(from), impl_->layout.page_bytes);
}

void KvPages::Discard(PageId first, std::uint32_t count) {
  TARE_CHECK(ToInt(first) < impl_->pages && count <= impl_->pages - ToInt(first));
  madvise(impl_->PageAt(first), impl_->layout.page_bytes * count, MADV_DONTNEED);
}

std::size_t KvPages::HugePageBytes() const {
  // Mappings are listed by address, each a line "from-to ..." and lines of figures. Neighbours of
  // the same kind are listed as one, so the mapping found may be a little larger than ours.
  std::ifstream smaps("/proc/self/smaps");
  const auto memory = reinterpret_cast<std::uintptr_t>(impl_->memory);
  std::string line;
  bool ours = false;
  while (memory != 0 && std::getline(smaps, line)) {
    std::uintptr_t from = 0, to = 0;
    std::size_t kib = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
      ours = from <= memory && memory < to;
    } else if (ours && std::sscanf(line.c_str(), "AnonHugePages: %zu", &kib) == 1) {
      return std::min(kib << 10, impl_->bytes);
    }
  }
  return 0;
}

}  // namespace tare::kernels
