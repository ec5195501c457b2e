// One connection of the HTTP client: a socket, TLS when asked, and the response parser. It moves
// bytes and reports what happened; whom it serves and for how long is the client's business.
// Internal to net.
#pragma once

#include <openssl/types.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "net/event_loop.h"
#include "net/http_client.h"
#include "net/http_response_parser.h"

namespace tare::net {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

class TlsContext {
 public:
  static Result<std::shared_ptr<TlsContext>> Create(const HttpClientOptions& options);
  ~TlsContext();
  SSL_CTX* get() const { return context_; }
  bool verify() const { return verify_; }

 private:
  SSL_CTX* context_ = nullptr;
  bool verify_ = true;
};

class ClientConnection final : public Watcher, private HttpResponseSink {
 public:
  // The client, as its connections see it. After OnConnectionFailed or OnConnectionDone the owner
  // may close or reuse the connection; it never destroys it but through the loop's Retire.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnConnected(ClientConnection& connection) = 0;  // ready for a request
    virtual void OnSent(ClientConnection& connection) = 0;       // the last byte is out
    virtual void OnHead(ClientConnection& connection, const HttpResponseHead& head) = 0;
    virtual void OnBody(ClientConnection& connection, std::string_view piece, Nanos received) = 0;
    virtual void OnResponseEnd(ClientConnection& connection, bool reusable, Nanos received) = 0;
    virtual void OnBroken(ClientConnection& connection, ClientFailure failure) = 0;
    virtual void OnReceiveLag(Nanos lag) = 0;  // from the kernel's receipt of bytes to ours
    virtual std::string& read_buffer() = 0;    // shared by the connections of one loop
  };

  ClientConnection(EventLoop* loop, Owner* owner, std::string origin, bool kernel_receipts);
  ~ClientConnection() override;

  // Tries the addresses in order until one accepts. Calls back later, never from inside.
  void Connect(std::vector<Address> addresses, std::string host, std::shared_ptr<TlsContext> tls);
  // Sends a request (the bytes are kept) and reads its response.
  void Send(std::string bytes, bool head_only, ClientTimes* times);
  void Close();

  bool closed() const { return state_ == State::kClosed; }
  bool idle() const { return state_ == State::kIdle; }
  const std::string& origin() const { return origin_; }
  // Bytes of the current response have come.
  bool answered() const { return answered_; }
  std::uint64_t call = 0;        // the owner's note of whom it serves; 0: nobody
  ClientTimes* times = nullptr;  // of that call

 private:
  enum class State { kNew, kConnecting, kHandshake, kIdle, kExchange, kClosed };

  void OnReady(std::uint32_t events) override;
  void OnHead(const HttpResponseHead& head) override;
  void OnBody(std::string_view piece) override;

  void TryNextAddress();
  void OnConnectReady();
  void StartHandshake();
  void ContinueHandshake();
  void Flush();
  void Receive();
  void StampReceipt();
  void SetInterest(std::uint32_t events);
  void Break(ClientFailureKind kind, ErrorKind error, std::string message);

  // >0 bytes moved; 0: the peer closed; kAgain; kFailed (fills failure_text_).
  static constexpr std::ptrdiff_t kAgain = -1;
  static constexpr std::ptrdiff_t kFailed = -2;
  std::ptrdiff_t ReadSome(char* into, std::size_t size);
  std::ptrdiff_t WriteSome(const char* from, std::size_t size);

  EventLoop* loop_;
  Owner* owner_;
  std::string origin_;
  const bool kernel_receipts_;
  std::string host_;
  State state_ = State::kNew;
  int fd_ = -1;
  std::uint32_t interest_ = 0;
  std::vector<Address> addresses_;
  std::size_t next_address_ = 0;
  int last_errno_ = 0;
  std::shared_ptr<TlsContext> tls_context_;
  SSL* tls_ = nullptr;
  std::string failure_text_;
  bool failure_is_reset_ = false;

  EventLoop::TimerId later_;  // what must not be done from inside a call; cancelled by Close
  std::string out_;
  std::size_t out_at_ = 0;
  bool answered_ = false;
  HttpResponseParser parser_;
  Nanos received_{0};
  Nanos kernel_receipt_{0};  // wall clock, of the bytes read last; zero: not told
};

}  // namespace tare::net
