#include "net/client_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace tare::net {
namespace {

// A stream that never pauses must not starve the others: after this many reads of a full buffer
// the loop looks at the rest.
constexpr int kReadsPerRound = 4;

std::string TlsErrorText() {
  std::string text;
  while (const unsigned long code = ERR_get_error()) {
    char line[256];
    ERR_error_string_n(code, line, sizeof line);
    if (!text.empty()) text += "; ";
    text += line;
  }
  return text.empty() ? "unknown TLS error" : text;
}

bool IsIpAddress(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// OpenSSL writes to sockets without MSG_NOSIGNAL: a peer that went away would end the process.
void IgnoreBrokenPipes() {
  struct sigaction action {};
  if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &action, nullptr);
  }
}

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::Create(const HttpClientOptions& options) {
  IgnoreBrokenPipes();
  auto result = std::make_shared<TlsContext>();
  result->verify_ = options.verify_tls;
  result->context_ = SSL_CTX_new(TLS_client_method());
  if (result->context_ == nullptr) {
    return Fail(ErrorKind::kInternal, "cannot set up TLS: {}", TlsErrorText());
  }
  SSL_CTX_set_min_proto_version(result->context_, TLS1_2_VERSION);
  SSL_CTX_set_mode(result->context_, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                         SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                         SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_verify(result->context_, options.verify_tls ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                     nullptr);
  const int loaded =
      options.ca_file.empty()
          ? SSL_CTX_set_default_verify_paths(result->context_)
          : SSL_CTX_load_verify_locations(result->context_, options.ca_file.c_str(), nullptr);
  if (options.verify_tls && loaded != 1) {
    return Fail(ErrorKind::kIo, "cannot read the certificates in '{}': {}",
                options.ca_file.empty() ? "the system's store" : options.ca_file, TlsErrorText());
  }
  return result;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

ClientConnection::ClientConnection(EventLoop* loop, Owner* owner, std::string origin,
                                   bool kernel_receipts)
    : loop_(loop), owner_(owner), origin_(std::move(origin)), kernel_receipts_(kernel_receipts) {}

ClientConnection::~ClientConnection() {
  if (tls_ != nullptr) SSL_free(tls_);
  if (fd_ >= 0) ::close(fd_);
}

void ClientConnection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  loop_->CancelTimer(later_);
  if (fd_ >= 0) {
    loop_->Unwatch(fd_);
    ::close(fd_);
    fd_ = -1;
  }
}

void ClientConnection::Connect(std::vector<Address> addresses, std::string host,
                               std::shared_ptr<TlsContext> tls) {
  addresses_ = std::move(addresses);
  host_ = std::move(host);
  tls_context_ = std::move(tls);
  state_ = State::kConnecting;
  TryNextAddress();
}

void ClientConnection::TryNextAddress() {
  while (next_address_ < addresses_.size()) {
    const Address& address = addresses_[next_address_++];
    fd_ = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) {
      last_errno_ = errno;
      continue;
    }
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (kernel_receipts_) ::setsockopt(fd_, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    const int code =
        ::connect(fd_, reinterpret_cast<const sockaddr*>(&address.storage), address.size);
    if (code == 0 || errno == EINPROGRESS) {
      // Readiness to write tells the outcome, also of a connect that succeeded at once.
      interest_ = EPOLLOUT;
      if (const Status watched = loop_->Watch(fd_, interest_, this); watched) return;
      last_errno_ = ENOSPC;
    } else {
      last_errno_ = errno;
    }
    ::close(fd_);
    fd_ = -1;
  }
  // Not from inside Connect: the owner is told in the loop's next timer round.
  later_ = loop_->RunAt(Nanos(0), [this] {
    const bool refused = last_errno_ == ECONNREFUSED;
    const bool timeout = last_errno_ == ETIMEDOUT;
    Break(refused   ? ClientFailureKind::kConnectRefused
          : timeout ? ClientFailureKind::kConnectTimeout
                    : ClientFailureKind::kConnectFailed,
          ErrorKind::kNetwork,
          fmt::format("cannot connect to {}: {}{}", origin_, std::strerror(last_errno_),
                      refused                 ? "; is the server running?"
                      : last_errno_ == EMFILE ? "; raise the limit of open files (ulimit -n)"
                                              : ""));
  });
}

void ClientConnection::OnConnectReady() {
  int code = 0;
  socklen_t size = sizeof code;
  if (::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &code, &size) != 0) code = errno;
  if (code != 0) {
    last_errno_ = code;
    loop_->Unwatch(fd_);
    ::close(fd_);
    fd_ = -1;
    TryNextAddress();
    return;
  }
  if (times != nullptr) times->connected = MonotonicNow();
  if (tls_context_ != nullptr) {
    StartHandshake();
    return;
  }
  state_ = State::kIdle;
  SetInterest(EPOLLIN);
  owner_->OnConnected(*this);
}

void ClientConnection::StartHandshake() {
  state_ = State::kHandshake;
  ERR_clear_error();
  tls_ = SSL_new(tls_context_->get());
  bool ready = tls_ != nullptr && SSL_set_fd(tls_, fd_) == 1;
  if (ready && IsIpAddress(host_)) {
    ready = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_), host_.c_str()) == 1;
  } else if (ready) {
    ready = SSL_set_tlsext_host_name(tls_, host_.c_str()) == 1 &&
            SSL_set1_host(tls_, host_.c_str()) == 1;
  }
  if (!ready) {
    Break(ClientFailureKind::kTls, ErrorKind::kInternal,
          fmt::format("cannot start TLS with {}: {}", origin_, TlsErrorText()));
    return;
  }
  SSL_set_connect_state(tls_);
  ContinueHandshake();
}

void ClientConnection::ContinueHandshake() {
  ERR_clear_error();
  const int code = SSL_do_handshake(tls_);
  if (code == 1) {
    if (times != nullptr) times->secured = MonotonicNow();
    state_ = State::kIdle;
    SetInterest(EPOLLIN);
    owner_->OnConnected(*this);
    return;
  }
  const int reason = SSL_get_error(tls_, code);
  if (reason == SSL_ERROR_WANT_READ) return SetInterest(EPOLLIN);
  if (reason == SSL_ERROR_WANT_WRITE) return SetInterest(EPOLLOUT);
  const long verdict = SSL_get_verify_result(tls_);
  const std::string why = tls_context_->verify() && verdict != X509_V_OK
                              ? X509_verify_cert_error_string(verdict)
                              : TlsErrorText();
  Break(ClientFailureKind::kTls, ErrorKind::kNetwork,
        fmt::format("TLS with {} failed: {}", origin_, why));
}

void ClientConnection::SetInterest(std::uint32_t events) {
  if (events == interest_) return;
  interest_ = events;
  loop_->Rewatch(fd_, events, this);
}

void ClientConnection::Send(std::string bytes, bool head_only, ClientTimes* call_times) {
  out_ = std::move(bytes);
  out_at_ = 0;
  answered_ = false;
  times = call_times;
  parser_.Reset(head_only);
  state_ = State::kExchange;
  times->sent = MonotonicNow();
  Flush();
}

void ClientConnection::Flush() {
  while (out_at_ < out_.size()) {
    const std::ptrdiff_t n = WriteSome(out_.data() + out_at_, out_.size() - out_at_);
    if (n == kAgain) {
      SetInterest(EPOLLIN | EPOLLOUT);
      return;
    }
    if (n < 0) {
      // The peer may have answered (413, say) and closed without reading it all: what it said is
      // still to be read, so the reading side tells how this ends.
      out_at_ = out_.size();
      SetInterest(EPOLLIN);
      return;
    }
    out_at_ += static_cast<std::size_t>(n);
  }
  SetInterest(EPOLLIN);
  times->sent_all = MonotonicNow();
  std::string().swap(out_);
  out_at_ = 0;
  owner_->OnSent(*this);
}

void ClientConnection::OnReady(std::uint32_t events) {
  switch (state_) {
    case State::kNew:
    case State::kClosed:
      return;
    case State::kConnecting:
      OnConnectReady();
      return;
    case State::kHandshake:
      ContinueHandshake();
      return;
    case State::kIdle: {
      // Nothing was asked, so whatever comes ends the connection: a close, or stray bytes. Only
      // TLS has words of its own (session tickets), which reading swallows.
      char byte = 0;
      if (ReadSome(&byte, 1) != kAgain) {
        Break(ClientFailureKind::kClosedEarly, ErrorKind::kNetwork, "closed while idle");
      }
      return;
    }
    case State::kExchange:
      if ((events & EPOLLOUT) != 0 && out_at_ < out_.size()) Flush();
      if (state_ == State::kExchange && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Receive();
      return;
  }
}

void ClientConnection::Receive() {
  std::string& buffer = owner_->read_buffer();
  for (int i = 0; i < kReadsPerRound; ++i) {
    const std::ptrdiff_t n = ReadSome(buffer.data(), buffer.size());
    if (n == kAgain) return;
    StampReceipt();
    if (n == kFailed) {
      Break(failure_is_reset_ ? ClientFailureKind::kReset : ClientFailureKind::kTls,
            ErrorKind::kNetwork, fmt::format("{}: {}", origin_, failure_text_));
      return;
    }
    if (n == 0) {
      const bool untouched = parser_.untouched();
      if (const Status end = parser_.Finish(); end) {
        state_ = State::kIdle;
        owner_->OnResponseEnd(*this, /*reusable=*/false, received_);
      } else {
        Break(ClientFailureKind::kClosedEarly, ErrorKind::kNetwork,
              untouched ? fmt::format("{} closed the connection without an answer", origin_)
                        : fmt::format("{}: {}", origin_, end.error().message));
      }
      return;
    }
    if (!answered_) {
      answered_ = true;
      times->first_byte = received_;
    }
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(n));
    const std::uint64_t served = call;
    const Result<std::size_t> used = parser_.Feed(bytes, *this);
    if (state_ != State::kExchange || call != served) return;  // cancelled by its handler
    if (!used) {
      Break(ClientFailureKind::kBadResponse, used.error().kind,
            fmt::format("{}: {}", origin_, used.error().message));
      return;
    }
    if (parser_.complete()) {
      state_ = State::kIdle;
      const bool reusable = parser_.keep_alive() && *used == bytes.size() && out_at_ >= out_.size();
      owner_->OnResponseEnd(*this, reusable, received_);
      return;
    }
    if (static_cast<std::size_t>(n) < buffer.size() && tls_ == nullptr) return;
  }
  // Bytes that TLS has already decrypted raise no readiness: come back for them.
  if (tls_ != nullptr && SSL_pending(tls_) > 0) {
    later_ = loop_->RunAt(Nanos(0), [this, served = call] {
      if (state_ == State::kExchange && call == served) Receive();
    });
  }
}

// The bytes' time is when the kernel took them from the network, where it tells (plain sockets):
// then neither our scheduling nor the reading of other connections is in it. Otherwise it is now.
void ClientConnection::StampReceipt() {
  const Nanos now = MonotonicNow();
  Nanos receipt = now;
  if (kernel_receipt_ != Nanos(0)) {
    const Nanos lag = std::chrono::system_clock::now().time_since_epoch() - kernel_receipt_;
    // A step of the wall clock between the two would show as nonsense.
    if (lag >= Nanos(0) && lag < std::chrono::seconds(10)) {
      receipt = now - lag;
      owner_->OnReceiveLag(lag);
    }
  }
  received_ = std::max(received_, receipt);
}

void ClientConnection::OnHead(const HttpResponseHead& head) {
  if (state_ == State::kExchange) owner_->OnHead(*this, head);
}

void ClientConnection::OnBody(std::string_view piece) {
  if (state_ == State::kExchange) owner_->OnBody(*this, piece, received_);
}

void ClientConnection::Break(ClientFailureKind kind, ErrorKind error, std::string message) {
  Close();
  owner_->OnBroken(*this, {kind, Error{error, std::move(message), {}}});
}

std::ptrdiff_t ClientConnection::ReadSome(char* into, std::size_t size) {
  kernel_receipt_ = Nanos(0);
  if (tls_ == nullptr) {
    while (true) {
      iovec piece{into, size};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(timespec))];
      msghdr message{};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      const ssize_t n = ::recvmsg(fd_, &message, 0);
      if (n >= 0) {
        const cmsghdr* header = CMSG_FIRSTHDR(&message);
        if (header != nullptr && header->cmsg_level == SOL_SOCKET &&
            header->cmsg_type == SCM_TIMESTAMPNS) {
          timespec time{};
          std::memcpy(&time, CMSG_DATA(header), sizeof time);
          kernel_receipt_ = std::chrono::seconds(time.tv_sec) + Nanos(time.tv_nsec);
        }
        return n;
      }
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return kAgain;
      failure_is_reset_ = true;
      failure_text_ = std::strerror(errno);
      return kFailed;
    }
  }
  ERR_clear_error();
  std::size_t n = 0;
  if (SSL_read_ex(tls_, into, size, &n) == 1) return static_cast<std::ptrdiff_t>(n);
  switch (SSL_get_error(tls_, 0)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return kAgain;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    default: {
      // A close without TLS's goodbye comes as a protocol error; the parser judges whether the
      // answer was whole.
      const unsigned long code = ERR_peek_error();
      if (ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return 0;
      failure_is_reset_ = code == 0;
      failure_text_ = code == 0 ? std::strerror(errno) : TlsErrorText();
      return kFailed;
    }
  }
}

std::ptrdiff_t ClientConnection::WriteSome(const char* from, std::size_t size) {
  if (tls_ == nullptr) {
    while (true) {
      const ssize_t n = ::send(fd_, from, size, MSG_NOSIGNAL);
      if (n >= 0) return n;
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK ? kAgain : kFailed;
    }
  }
  ERR_clear_error();
  std::size_t n = 0;
  if (SSL_write_ex(tls_, from, size, &n) == 1) return static_cast<std::ptrdiff_t>(n);
  const int reason = SSL_get_error(tls_, 0);
  return reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE ? kAgain : kFailed;
}

}  // namespace tare::net
