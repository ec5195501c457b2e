// Test helper: bodies as servers compress them.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <vector>

namespace tare::net {

inline constexpr int kGzipWindow = 31, kZlibWindow = 15;

// Flushed after each part, as servers of streams do.
inline std::string Gzipped(const std::vector<std::string>& parts, int window = kGzipWindow) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(1 << 20, 0);
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::string part = parts[i];
    stream.next_in = reinterpret_cast<Bytef*>(part.data());
    stream.avail_in = static_cast<uInt>(part.size());
    deflate(&stream, i + 1 == parts.size() ? Z_FINISH : Z_SYNC_FLUSH);
  }
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

}  // namespace tare::net
