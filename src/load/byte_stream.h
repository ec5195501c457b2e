// Little-endian values and lengths in a string: the writing and the careful reading of bytes that
// processes of one version exchange. Thread safety: one thread at a time.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace tare::load {

static_assert(std::endian::native == std::endian::little, "bytes are exchanged as they lie");

class ByteWriter {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void PutText(std::string_view text) {
    Put(static_cast<std::uint64_t>(text.size()));
    bytes_.append(text);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After a read past the end every further one gives zeros and ok() is false.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (bytes_.size() < sizeof value) {
      ok_ = false;
      bytes_ = {};
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return value;
  }
  // A count of things of at least `each` bytes that follow; 0 when they cannot all be there.
  std::size_t Count(std::size_t each) {
    const auto count = Get<std::uint64_t>();
    if (count > bytes_.size() / (each == 0 ? 1 : each)) {
      ok_ = false;
      bytes_ = {};
      return 0;
    }
    return static_cast<std::size_t>(count);
  }
  std::string Text() {
    const std::size_t size = Count(1);
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }
  std::string_view Rest() const { return bytes_; }
  void Reject() { ok_ = false; }
  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace tare::load
