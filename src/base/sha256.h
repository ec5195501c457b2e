// SHA-256 (FIPS 180-4), at once or piece by piece.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tare {

using Sha256Digest = std::array<std::uint8_t, 32>;

Sha256Digest Sha256(std::span<const std::byte> bytes);
Sha256Digest Sha256(std::string_view text);
// 64 digits, lower case.
std::string ToHex(const Sha256Digest& digest);

// Thread safety: belongs to one thread.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;

  void Add(std::string_view bytes);
  Sha256Digest Finish();  // once, after the last Add

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace tare
