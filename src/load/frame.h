// Messages between a coordinator and its agents: length, kind, bytes, over a blocking TCP socket.
//
//   [u32 length of the payload, little endian][u8 kind][payload]
//
// Ownership: a Link owns its socket. Thread safety: one thread may receive while another sends;
// sends from several threads are serialised inside.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/types.h"

namespace tare::load {

enum class FrameKind : std::uint8_t {
  kChallenge = 1,  // coordinator: a nonce
  kHello,          // agent: who it is, the proof that it knows the key, a nonce of its own
  kWelcome,        // coordinator: its proof
  kPing,           // coordinator: nothing
  kPong,           // agent: its monotonic time
  kPlan,           // coordinator: what to send
  kReady,          // agent: it has all it needs
  kStart,          // coordinator: when, in the agent's clock
  kProgress,       // agent: counters
  kStop,           // coordinator: start no more requests
  kFinish,         // coordinator: end what runs and report
  kResult,         // agent: its recording
  kError,          // agent: why it cannot
};

struct Frame {
  FrameKind kind = FrameKind::kError;
  std::string payload;
};

inline constexpr std::size_t kMostHandshakeBytes = 64 << 10;
inline constexpr std::size_t kMostFrameBytes = std::size_t{2} << 30;

class Link {
 public:
  explicit Link(int fd);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  static Result<std::unique_ptr<Link>> Connect(const std::string& host, std::uint16_t port,
                                               Nanos timeout);

  Status Send(FrameKind kind, std::string_view payload);
  Status Send(FrameKind kind, const nlohmann::json& payload);
  // Fails when the peer has closed, on a kind that does not exist, on a payload over `most`, and
  // when nothing whole came within `timeout` (0: waits for ever).
  Result<Frame> Receive(Nanos timeout, std::size_t most = kMostFrameBytes);
  // Something has come (or the peer has gone) within `timeout`.
  bool Readable(Nanos timeout);
  // A JSON object in a frame of this kind; a kError frame is the peer's own error.
  Result<nlohmann::json> ReceiveJson(FrameKind kind, Nanos timeout);
  // Ends both directions: a Receive in another thread returns.
  void Shut();

 private:
  int fd_;
  std::mutex send_mutex_;  // held while a frame is written
};

// A listening socket. `host` "127.0.0.1", "0.0.0.0" or a name; port 0: any free one.
class Listener {
 public:
  static Result<std::unique_ptr<Listener>> Open(const std::string& host, std::uint16_t port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  std::uint16_t port() const { return port_; }
  // The next connection, or an error after `timeout`.
  Result<std::unique_ptr<Link>> Accept(Nanos timeout);

 private:
  Listener(int fd, std::uint16_t port) : fd_(fd), port_(port) {}
  int fd_;
  std::uint16_t port_;
};

// "host:port".
Result<std::pair<std::string, std::uint16_t>> ParseHostPort(const std::string& text);

// HMAC-SHA-256 in hex (RFC 2104): what proves that a peer knows the key.
std::string Proof(std::string_view key, std::string_view nonce);
// Without telling by its time where they differ.
bool SameProof(std::string_view a, std::string_view b);
std::string NewNonce();

}  // namespace tare::load
