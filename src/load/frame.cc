#include "load/frame.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/sha256.h"
#include "base/units.h"
#include "net/event_loop.h"

namespace tare::load {
namespace {

using nlohmann::json;

constexpr std::size_t kHead = 5;

struct Addresses {
  addrinfo* list = nullptr;
  ~Addresses() {
    if (list != nullptr) ::freeaddrinfo(list);
  }
};

Status Resolve(const std::string& host, std::uint16_t port, bool passive, Addresses& addresses) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  const int code =
      ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &addresses.list);
  if (code != 0) {
    return Fail(ErrorKind::kNetwork, "'{}' has no address: {}", host, ::gai_strerror(code));
  }
  return {};
}

// Waits until `events` can be done; false when the time is over.
bool Wait(int fd, short events, Nanos until) {
  while (true) {
    int ms = -1;
    if (until != Nanos::max()) {
      const Nanos left = until - net::MonotonicNow();
      if (left <= Nanos(0)) return false;
      ms =
          static_cast<int>(std::min<std::int64_t>((left.count() + 999'999) / 1'000'000, 3'600'000));
    }
    pollfd poll{fd, events, 0};
    const int n = ::poll(&poll, 1, ms);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

void NoDelay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Link::Link(int fd) : fd_(fd) { NoDelay(fd_); }
Link::~Link() { ::close(fd_); }
void Link::Shut() { ::shutdown(fd_, SHUT_RDWR); }

Result<std::unique_ptr<Link>> Link::Connect(const std::string& host, std::uint16_t port,
                                            Nanos timeout) {
  Addresses addresses;
  TARE_RETURN_IF_ERROR(Resolve(host, port, /*passive=*/false, addresses));
  std::string why = "no address";
  for (const addrinfo* a = addresses.list; a != nullptr; a = a->ai_next) {
    const int fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    int error = 0;
    if (::connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
      error = errno;
      if (error == EINPROGRESS) {
        socklen_t size = sizeof error;
        if (!Wait(fd, POLLOUT, net::MonotonicNow() + timeout)) {
          error = ETIMEDOUT;
        } else {
          ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
        }
      }
    }
    if (error == 0) return std::make_unique<Link>(fd);
    why = std::strerror(error);
    ::close(fd);
  }
  return Fail(ErrorKind::kNetwork, "cannot connect to {}:{}: {}", host, port, why);
}

Status Link::Send(FrameKind kind, std::string_view payload) {
  const std::lock_guard lock(send_mutex_);
  std::array<char, kHead> head{};
  const auto length = static_cast<std::uint32_t>(payload.size());
  for (std::size_t i = 0; i < 4; ++i) head[i] = static_cast<char>((length >> (8 * i)) & 0xff);
  head[4] = static_cast<char>(kind);
  for (std::string_view left : {std::string_view(head.data(), head.size()), payload}) {
    while (!left.empty()) {
      const ssize_t n = ::send(fd_, left.data(), left.size(), MSG_NOSIGNAL);
      if (n > 0) {
        left.remove_prefix(static_cast<std::size_t>(n));
      } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        constexpr Nanos kPatience = std::chrono::seconds(60);
        if (!Wait(fd_, POLLOUT, net::MonotonicNow() + kPatience)) {
          return Fail(ErrorKind::kNetwork, "the peer takes nothing any more");
        }
      } else if (n < 0 && errno != EINTR) {
        return Fail(ErrorKind::kNetwork, "the connection is gone: {}", std::strerror(errno));
      }
    }
  }
  return {};
}

Status Link::Send(FrameKind kind, const json& payload) {
  return Send(kind, std::string_view(payload.dump(-1, ' ', false, json::error_handler_t::replace)));
}

bool Link::Readable(Nanos timeout) { return Wait(fd_, POLLIN, net::MonotonicNow() + timeout); }

Result<Frame> Link::Receive(Nanos timeout, std::size_t most) {
  const Nanos until = timeout > Nanos(0) ? net::MonotonicNow() + timeout : Nanos::max();
  const auto read = [&](char* to, std::size_t size) -> Status {
    while (size > 0) {
      if (!Wait(fd_, POLLIN, until)) {
        return Fail(ErrorKind::kDeadlineExceeded, "nothing came in time");
      }
      const ssize_t n = ::recv(fd_, to, size, 0);
      if (n > 0) {
        to += n;
        size -= static_cast<std::size_t>(n);
      } else if (n == 0) {
        return Fail(ErrorKind::kNetwork, "the peer closed the connection");
      } else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
        return Fail(ErrorKind::kNetwork, "the connection is gone: {}", std::strerror(errno));
      }
    }
    return {};
  };
  std::array<char, kHead> head{};
  TARE_RETURN_IF_ERROR(read(head.data(), head.size()));
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    length |= static_cast<std::uint32_t>(static_cast<unsigned char>(head[i])) << (8 * i);
  }
  Frame frame;
  const auto kind = static_cast<std::uint8_t>(head[4]);
  if (kind < static_cast<std::uint8_t>(FrameKind::kChallenge) ||
      kind > static_cast<std::uint8_t>(FrameKind::kError)) {
    return Fail(ErrorKind::kCorrupt, "not a message of a load agent");
  }
  frame.kind = static_cast<FrameKind>(kind);
  if (length > most) {
    return Fail(ErrorKind::kCorrupt, "a message of {} bytes is over the limit of {}", length, most);
  }
  // Grown as bytes arrive: a length alone must not take memory.
  constexpr std::size_t kStep = 1 << 20;
  while (frame.payload.size() < length) {
    const std::size_t have = frame.payload.size();
    const std::size_t step = std::min<std::size_t>(kStep, length - have);
    frame.payload.resize(have + step);
    TARE_RETURN_IF_ERROR(read(frame.payload.data() + have, step));
  }
  return frame;
}

Result<json> Link::ReceiveJson(FrameKind kind, Nanos timeout) {
  TARE_TRY(const Frame frame, Receive(timeout, kMostFrameBytes));
  json document = json::parse(frame.payload, nullptr, /*allow_exceptions=*/false);
  if (frame.kind == FrameKind::kError) {
    const bool told =
        document.is_object() && document.contains("message") && document["message"].is_string();
    return Fail(ErrorKind::kUnavailable, "{}",
                told ? document["message"].get<std::string>() : "no reason given");
  }
  if (frame.kind != kind || !document.is_object()) {
    return Fail(ErrorKind::kCorrupt, "a message of another kind was due");
  }
  return document;
}

Result<std::unique_ptr<Listener>> Listener::Open(const std::string& host, std::uint16_t port) {
  Addresses addresses;
  TARE_RETURN_IF_ERROR(Resolve(host, port, /*passive=*/true, addresses));
  std::string why = "no address";
  for (const addrinfo* a = addresses.list; a != nullptr; a = a->ai_next) {
    const int fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (::bind(fd, a->ai_addr, a->ai_addrlen) == 0 && ::listen(fd, 256) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) == 0) {
      const std::uint16_t taken =
          bound.ss_family == AF_INET6
              ? ntohs(reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port)
              : ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
      return std::unique_ptr<Listener>(new Listener(fd, taken));
    }
    why = std::strerror(errno);
    ::close(fd);
  }
  return Fail(ErrorKind::kNetwork, "cannot listen on {}:{}: {}", host, port, why);
}

Listener::~Listener() { ::close(fd_); }

Result<std::unique_ptr<Link>> Listener::Accept(Nanos timeout) {
  if (!Wait(fd_, POLLIN, net::MonotonicNow() + timeout)) {
    return Fail(ErrorKind::kDeadlineExceeded, "no agent came in time");
  }
  const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return Fail(ErrorKind::kNetwork, "cannot accept: {}", std::strerror(errno));
  return std::make_unique<Link>(fd);
}

Result<std::pair<std::string, std::uint16_t>> ParseHostPort(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const Result<std::int64_t> port = colon == std::string::npos
                                        ? Fail(ErrorKind::kInvalidArgument, "no port")
                                        : ParseInteger(std::string_view(text).substr(colon + 1));
  if (!port || *port < 0 || *port > 65535 || colon == 0) {
    return Fail(ErrorKind::kInvalidArgument, "'{}' is not understood; write HOST:PORT", text);
  }
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);  // [::1]:7070
  }
  return std::pair{std::move(host), static_cast<std::uint16_t>(*port)};
}

std::string Proof(std::string_view key, std::string_view nonce) {
  constexpr std::size_t kBlock = 64;
  const auto raw = [](const Sha256Digest& digest) {
    return std::string(digest.begin(), digest.end());
  };
  std::string padded = key.size() > kBlock ? raw(Sha256(key)) : std::string(key);
  padded.resize(kBlock, '\0');
  std::string inner = padded, outer = padded;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return ToHex(Sha256(outer + raw(Sha256(inner.append(nonce)))));
}

bool SameProof(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

std::string NewNonce() {
  std::random_device device;
  std::string nonce;
  for (int i = 0; i < 8; ++i) nonce += fmt::format("{:08x}", device());
  return nonce;
}

}  // namespace tare::load
