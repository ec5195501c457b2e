// The insides of KvPages, shared with attention.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_layout.h"
#include "kernels/kv_pages.h"

namespace tare::kernels {

struct KvPages::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  std::uint8_t* PageAt(PageId page) const { return memory + ToInt(page) * layout.page_bytes; }
  std::uint8_t* HeadAt(PageId page, int layer, int head) const {
    return PageAt(page) + static_cast<std::size_t>(layer) * layout.layer_bytes +
           static_cast<std::size_t>(head) * layout.head_bytes;
  }

  KvShape shape;
  KvLayout layout;
  std::uint32_t pages = 0;
  std::uint8_t* memory = nullptr;  // address space of all pages
  std::size_t bytes = 0;
};

}  // namespace tare::kernels
