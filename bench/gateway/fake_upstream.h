// The server behind the gateway in its benchmarks: answers every chat at once, or token by token.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/event_loop.h"
#include "net/http_server.h"

namespace tare::bench {

struct FakeAnswer {
  int chunks = 1;  // with one token each
  Nanos gap{};     // between chunks; zero: all at once, each an event of its own
};

class FakeUpstream {
 public:
  static Result<std::unique_ptr<FakeUpstream>> Start();
  ~FakeUpstream();

  void Answer(FakeAnswer answer);  // from the next request on
  std::string Url() const;
  std::uint64_t requests() const { return requests_.load(); }

 private:
  FakeUpstream() = default;
  void Handle(std::shared_ptr<net::ResponseWriter> writer);
  void Continue(std::shared_ptr<net::ResponseWriter> writer, int left, Nanos gap);

  std::atomic<int> chunks_{1};
  std::atomic<std::int64_t> gap_ns_{0};
  std::atomic<std::uint64_t> requests_{0};
  std::unique_ptr<net::EventLoop> loop_;
  std::thread thread_;
  std::unique_ptr<net::HttpServer> server_;
};

}  // namespace tare::bench
