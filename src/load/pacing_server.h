// A small OpenAI-compatible server whose times are known: it answers each request with as many
// tokens as were asked, the first after `first_token`, the others `gap` apart, and writes into
// every chunk the moment it was handed to the kernel ("tare_ns", monotonic). Against it the load
// generator proves its own ceiling and timing error (tare load --self-test), and tests know what
// they must see.
//
// It computes nothing: with a gap of zero it is a null server that streams as fast as its client
// reads. Listens on loopback only. Thread safety: stats may be read from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/types.h"

namespace tare::load {

struct PacingOptions {
  int threads = 1;
  Nanos first_token{0};
  Nanos gap{0};
  int tokens_per_chunk = 1;
};

class PacingServer {
 public:
  static Result<std::unique_ptr<PacingServer>> Start(PacingOptions options);
  ~PacingServer();
  PacingServer(const PacingServer&) = delete;
  PacingServer& operator=(const PacingServer&) = delete;

  std::uint16_t port() const;
  std::string url() const;
  std::uint64_t chunks_sent() const;

 private:
  struct Impl;
  explicit PacingServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tare::load
