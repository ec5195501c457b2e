// Unpacks a body that came with Content-Encoding gzip or deflate (RFC 9110 8.4.1, RFC 1952, RFC
// 1950), piece by piece as its bytes arrive: what a server has flushed comes out at once, so that
// a compressed stream of events stays a stream.
//
// Thread safety: none; one decoder a body.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"

namespace tare::net {

class GzipDecoder {
 public:
  // Whether bodies of this Content-Encoding can be unpacked here.
  static bool Knows(std::string_view encoding);

  GzipDecoder();
  ~GzipDecoder();
  GzipDecoder(GzipDecoder&&) noexcept;
  GzipDecoder& operator=(GzipDecoder&&) noexcept;

  // Hands on what the bytes unpack to, in pieces of at most 16 KiB, so that a small body which
  // unpacks to a huge one is never held whole here; false from `take` ends the call early.
  Status Feed(std::string_view bytes, const std::function<bool(std::string_view)>& take);

  // The body's own end mark has come: a body that ends before it was cut.
  bool complete() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tare::net
