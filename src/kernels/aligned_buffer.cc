#include "kernels/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <utility>

namespace tare::kernels {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kLine;
  bytes_ = (bytes + alignment - 1) / alignment * alignment;
  data_ = std::aligned_alloc(alignment, bytes_);
  if (data_ == nullptr) throw std::bad_alloc();
  // Streaming through weights touches a new 4 KiB page every few hundred cycles; huge pages take
  // the page walks away. Where the kernel refuses, everything still works.
  if (alignment == kHugePage) madvise(data_, bytes_, MADV_HUGEPAGE);
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() { std::free(data_); }

void AlignedBuffer::Reserve(std::size_t bytes) {
  if (bytes > bytes_) *this = AlignedBuffer(bytes);
}

}  // namespace tare::kernels
