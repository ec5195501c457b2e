// Memory for kernels: aligned to cache lines, on huge pages when it is large. Contents are
// uninitialised. Move-only; not thread safe.
#pragma once

#include <cstddef>

namespace tare::kernels {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t bytes);
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  ~AlignedBuffer();

  // Makes room for at least `bytes`; contents are lost when it has to grow.
  void Reserve(std::size_t bytes);

  std::size_t size() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tare::kernels
