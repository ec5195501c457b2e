#include "load/pacing_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "net/event_loop.h"

namespace tare::load {
namespace {

constexpr std::size_t kMostRequestBytes = 64 << 20;
constexpr std::size_t kReadBytes = 64 << 10;
// A stream without pauses is written in pieces, so that the others get their turn.
constexpr int kChunksPerTurn = 64;

// The number after `key` in a request body, or `absent`. The server reads what its own client
// writes; it need not know JSON.
int NumberAfter(std::string_view body, std::string_view key, int absent) {
  const std::size_t at = body.find(key);
  if (at == std::string_view::npos) return absent;
  const std::string_view rest = body.substr(at + key.size(), 12);
  int value = absent;
  std::from_chars(rest.data(), rest.data() + rest.size(), value);
  return value;
}

int CountWords(std::string_view body) {
  std::size_t content = body.rfind("\"content\":");
  if (content == std::string_view::npos) content = body.rfind("\"prompt\":");
  if (content == std::string_view::npos) return 0;
  return 1 + static_cast<int>(
                 std::count(body.begin() + static_cast<std::ptrdiff_t>(content), body.end(), ' '));
}

std::string HexChunk(std::string_view payload) {
  return fmt::format("{:x}\r\n{}\r\n", payload.size(), payload);
}

class Loop;

class Connection final : public net::Watcher {
 public:
  Connection(Loop* owner, int fd) : owner_(owner), fd_(fd) {}
  ~Connection() override {
    if (fd_ >= 0) ::close(fd_);
  }
  void OnReady(std::uint32_t events) override;
  int fd() const { return fd_; }

 private:
  void TakeRequests();
  void Answer(std::string_view head, std::string_view body);
  void Continue();
  void QueueChunk();
  bool Flush();
  void Close();
  void Arm();

  Loop* owner_;
  int fd_;
  std::string in_;
  std::string out_;
  bool wants_write_ = false;
  // The stream under way.
  bool streaming_ = false;
  int tokens_ = 0, sent_ = 0, prompt_ = 0;
  Nanos due_{0};
  net::EventLoop::TimerId timer_;
};

class Loop final : public net::Watcher {
 public:
  Loop(const PacingOptions& options, std::unique_ptr<net::EventLoop> loop, int listener)
      : options_(options), loop_(std::move(loop)), listener_(listener) {
    buffer_.resize(kReadBytes);
  }
  ~Loop() override {
    if (thread_.joinable()) {
      loop_->Stop();
      thread_.join();
    }
    ::close(listener_);
  }

  Status Start() {
    TARE_RETURN_IF_ERROR(loop_->Watch(listener_, EPOLLIN, this));
    thread_ = std::thread([this] { loop_->Run(); });
    return {};
  }
  void OnReady(std::uint32_t) override {
    while (true) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      auto connection = std::make_unique<Connection>(this, fd);
      if (loop_->Watch(fd, EPOLLIN, connection.get())) {
        Connection* pointer = connection.get();
        connections_.emplace(pointer, std::move(connection));
      }
    }
  }
  void Forget(Connection* connection) {
    const auto it = connections_.find(connection);
    if (it == connections_.end()) return;
    loop_->Retire(std::move(it->second));
    connections_.erase(it);
  }

  const PacingOptions& options() const { return options_; }
  net::EventLoop& loop() { return *loop_; }
  std::string& buffer() { return buffer_; }
  std::atomic<std::uint64_t> chunks{0};

 private:
  PacingOptions options_;
  std::unique_ptr<net::EventLoop> loop_;
  int listener_;
  std::string buffer_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  std::thread thread_;
};

void Connection::OnReady(std::uint32_t events) {
  if (fd_ < 0) return;
  if ((events & EPOLLOUT) != 0) {
    if (!Flush()) return;
    if (streaming_ && out_.empty() && owner_->options().gap == Nanos(0)) Continue();
    if (fd_ < 0) return;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  std::string& buffer = owner_->buffer();
  const ssize_t n = ::recv(fd_, buffer.data(), buffer.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0 || in_.size() + static_cast<std::size_t>(n) > kMostRequestBytes) return Close();
  in_.append(buffer.data(), static_cast<std::size_t>(n));
  TakeRequests();
}

void Connection::TakeRequests() {
  while (fd_ >= 0 && !streaming_) {
    const std::size_t end = in_.find("\r\n\r\n");
    if (end == std::string::npos) return;
    const std::size_t body_at = end + 4;
    const int length = NumberAfter(std::string_view(in_).substr(0, end), "Content-Length: ", 0);
    const std::size_t size = static_cast<std::size_t>(std::max(length, 0));
    if (in_.size() < body_at + size) return;
    const std::string request = in_.substr(0, body_at + size);
    in_.erase(0, body_at + size);
    Answer(std::string_view(request).substr(0, body_at), std::string_view(request).substr(body_at));
  }
}

void Connection::Answer(std::string_view head, std::string_view body) {
  const auto plain = [&](int status, std::string_view content) {
    out_ += fmt::format(
        "HTTP/1.1 {} X\r\nContent-Type: application/json\r\nServer: tare-pacing\r\n"
        "Content-Length: {}\r\n\r\n{}",
        status, content.size(), content);
    Flush();
  };
  if (head.substr(0, 14) == "GET /v1/models") {
    return plain(200, R"({"object":"list","data":[{"id":"pacing","object":"model"}]})");
  }
  if (head.find("completions HTTP/") == std::string_view::npos) {
    return plain(404, R"({"error":{"message":"no such path"}})");
  }
  tokens_ = std::max(
      1, NumberAfter(body, "\"max_tokens\":", NumberAfter(body, "\"max_completion_tokens\":", 16)));
  prompt_ = CountWords(body);
  if (body.find("\"stream\":true") == std::string_view::npos) {
    return plain(200, fmt::format("{{\"choices\":[{{\"index\":0,\"message\":{{\"role\":"
                                  "\"assistant\",\"content\":\"x\"}},\"finish_reason\":\"length\""
                                  "}}],\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{}"
                                  "}}}}",
                                  prompt_, tokens_));
  }
  streaming_ = true;
  sent_ = 0;
  due_ = net::MonotonicNow() + owner_->options().first_token;
  out_ +=
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nServer: tare-pacing\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  out_ += HexChunk(
      "data: "
      "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n");
  if (!Flush()) return;
  if (owner_->options().first_token == Nanos(0)) {
    Continue();
  } else {
    Arm();
  }
}

void Connection::Arm() {
  timer_ = owner_->loop().RunAt(due_, [this] {
    timer_ = {};
    Continue();
  });
}

void Connection::QueueChunk() {
  const int tokens = std::min(owner_->options().tokens_per_chunk, tokens_ - sent_);
  sent_ += tokens;
  const bool last = sent_ >= tokens_;
  std::string ids;
  if (owner_->options().tokens_per_chunk > 1) {
    for (int i = 0; i < tokens; ++i) ids += i == 0 ? "7" : ",7";
    ids = ",\"token_ids\":[" + ids + "]";
  }
  // As long as what servers send (about 200 bytes).
  const std::string event = fmt::format(
      "data: {{\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":"
      "\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"pacing\",\"tare_ns\":{},"
      "\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" token\"}},\"finish_reason\":{}{}}}]}}"
      "\n\n",
      net::MonotonicNow().count(), last ? "\"length\"" : "null", ids);
  out_ += HexChunk(event);
  owner_->chunks.fetch_add(1, std::memory_order_relaxed);
}

void Connection::Continue() {
  const Nanos gap = owner_->options().gap;
  for (int i = 0; i < kChunksPerTurn && sent_ < tokens_; ++i) {
    QueueChunk();
    due_ += gap;
    if (!Flush()) return;
    if (gap > Nanos(0)) break;
    if (!out_.empty()) return;  // the client is behind: go on when it has read
  }
  if (sent_ < tokens_) return Arm();
  out_ += HexChunk(fmt::format(
      "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{}}}}}\n\n",
      prompt_, tokens_));
  out_ += HexChunk("data: [DONE]\n\n");
  out_ += "0\r\n\r\n";
  streaming_ = false;
  if (Flush()) TakeRequests();
}

bool Connection::Flush() {
  while (!out_.empty()) {
    const ssize_t n = ::send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n < 0) {
      Close();
      return false;
    }
    out_.erase(0, static_cast<std::size_t>(n));
  }
  const bool wants_write = !out_.empty();
  if (wants_write != wants_write_) {
    wants_write_ = wants_write;
    owner_->loop().Rewatch(fd_, wants_write ? EPOLLIN | EPOLLOUT : EPOLLIN, this);
  }
  return true;
}

void Connection::Close() {
  if (fd_ < 0) return;
  owner_->loop().CancelTimer(timer_);
  owner_->loop().Unwatch(fd_);
  ::close(fd_);
  fd_ = -1;
  streaming_ = false;
  owner_->Forget(this);
}

// SO_REUSEPORT spreads the connections over the threads' listeners.
Result<int> Listen(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (fd < 0 || ::setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0 ||
      ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, 16384) != 0) {
    const Error error{ErrorKind::kNetwork,
                      fmt::format("cannot listen on loopback: {}", std::strerror(errno)),
                      {}};
    if (fd >= 0) ::close(fd);
    return tl::unexpected(error);
  }
  return fd;
}

}  // namespace

struct PacingServer::Impl {
  std::uint16_t port = 0;
  std::vector<std::unique_ptr<Loop>> loops;
};

PacingServer::PacingServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PacingServer::~PacingServer() = default;

Result<std::unique_ptr<PacingServer>> PacingServer::Start(PacingOptions options) {
  auto impl = std::make_unique<Impl>();
  for (int i = 0; i < std::max(1, options.threads); ++i) {
    TARE_TRY(const int listener, Listen(impl->port));
    if (impl->port == 0) {
      sockaddr_in address{};
      socklen_t size = sizeof address;
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
      impl->port = ntohs(address.sin_port);
    }
    auto loop = net::EventLoop::Create();
    if (!loop) {
      ::close(listener);
      return tl::unexpected(loop.error());
    }
    impl->loops.push_back(std::make_unique<Loop>(options, *std::move(loop), listener));
  }
  for (const auto& loop : impl->loops) TARE_RETURN_IF_ERROR(loop->Start());
  return std::unique_ptr<PacingServer>(new PacingServer(std::move(impl)));
}

std::uint16_t PacingServer::port() const { return impl_->port; }
std::string PacingServer::url() const { return fmt::format("http://127.0.0.1:{}", impl_->port); }
std::uint64_t PacingServer::chunks_sent() const {
  std::uint64_t sum = 0;
  for (const auto& loop : impl_->loops) sum += loop->chunks.load(std::memory_order_relaxed);
  return sum;
}

}  // namespace tare::load
