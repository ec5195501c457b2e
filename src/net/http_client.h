// An asynchronous HTTP/1.1 client on one EventLoop: keep-alive pool, timeouts of every phase, TLS.
// The load generator runs one per thread; the gateway's remote upstreams run one on a thread of
// their own (HttpClientThread).
//
// Every body piece comes with the time its bytes arrived, read before anything looks at them: the
// kernel's own receive stamp (SO_TIMESTAMPNS, brought to the monotonic clock) on plain connections,
// the moment of the read under TLS.
//
// A call that fails on a reused connection before any byte of its answer came is sent once more on
// a fresh one: the server had closed the idle connection (RFC 9112 9.3.1; all common clients do
// so). Nothing else is retried.
//
// Ownership: the loop outlives the client; the client keeps a handler until its call is over.
// Thread safety: HttpClient belongs to the loop's thread; HttpClientThread to any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/histogram.h"
#include "base/result.h"
#include "base/types.h"
#include "net/event_loop.h"
#include "net/http_message.h"
#include "net/http_response_parser.h"
#include "net/url.h"

namespace tare::net {

struct ClientRequest {
  std::string method = "GET";
  Url url;
  HttpHeaders headers;  // Host and Content-Length are added
  std::string body;
  // Time limits; zero: none.
  Nanos connect_timeout = std::chrono::seconds(5);  // name, connection and TLS together
  Nanos first_byte_timeout{0};                      // from sent to the first byte of the answer
  Nanos idle_timeout{0};                            // between two pieces of the answer
  Nanos total_timeout{0};                           // of the whole call
};

// When each phase of a call was reached; zero: not reached. Monotonic.
struct ClientTimes {
  Nanos started{0};    // Start was called
  Nanos resolved{0};   // the name's addresses were known
  Nanos connected{0};  // TCP established; equals started on a reused connection
  Nanos secured{0};    // TLS established
  Nanos sent{0};       // just before the first byte of the request was given to the kernel
  Nanos sent_all{0};   // after the last one
  Nanos first_byte{0};
  Nanos ended{0};
  bool reused = false;  // on a kept connection
  int resent = 0;       // 1: after a kept connection turned out closed
};

enum class ClientFailureKind {
  kResolve,           // the name has no address
  kConnectRefused,    // nobody listens
  kConnectTimeout,    // no answer in connect_timeout
  kConnectFailed,     // unreachable, no descriptor, ...
  kTls,               // handshake or certificate
  kReset,             // the peer reset the connection
  kClosedEarly,       // the peer closed before the answer ended
  kFirstByteTimeout,  //
  kIdleTimeout,       // the answer stopped coming
  kTotalTimeout,      //
  kBadResponse,       // not HTTP/1.1, or over the limits
};
// "connect_refused": stable, used in records and metrics.
const char* ToString(ClientFailureKind kind);

struct ClientFailure {
  ClientFailureKind kind = ClientFailureKind::kConnectFailed;
  Error error;
};

// Receives one answer, on the loop's thread: OnHead, OnBody zero or more times, then OnDone; or
// OnFailure at any point. Nothing comes after OnDone, OnFailure or a Cancel, nor from inside Start.
// Handlers may start and cancel calls.
class ClientHandler {
 public:
  virtual ~ClientHandler() = default;
  virtual void OnHead(const HttpResponseHead& head, const ClientTimes& times) = 0;
  virtual void OnBody(std::string_view piece, Nanos received) = 0;
  virtual void OnDone(const ClientTimes& times) = 0;
  virtual void OnFailure(const ClientFailure& failure, const ClientTimes& times) = 0;
};

struct HttpClientOptions {
  std::size_t max_idle_per_origin = 1024;  // kept connections
  bool verify_tls = true;
  std::string ca_file;          // empty: the system's
  bool kernel_receipts = true;  // false: the moment of the read, which costs less
};

class HttpClient {
 public:
  enum class CallId : std::uint64_t {};

  static Result<std::unique_ptr<HttpClient>> Create(EventLoop* loop, HttpClientOptions options);
  ~HttpClient();  // cancels what runs
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Fails only on a request that cannot be written down (a line break in a header).
  Result<CallId> Start(ClientRequest request, std::shared_ptr<ClientHandler> handler);
  // Closes the call's connection; the peer sees the cut. Does nothing when the call is over.
  void Cancel(CallId id);

  std::size_t running() const;  // calls
  std::size_t open_connections() const;
  // How long bytes lay in the kernel before this client took them (plain connections).
  const Histogram& receive_lag() const;

  struct Impl;

 private:
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A loop, its thread and a client on it.
class HttpClientThread {
 public:
  static Result<std::unique_ptr<HttpClientThread>> Create(HttpClientOptions options);
  ~HttpClientThread();
  HttpClientThread(const HttpClientThread&) = delete;
  HttpClientThread& operator=(const HttpClientThread&) = delete;

  // A call that was started; destroying it leaves the call running. Cancel may be called from any
  // thread; the handler may still hear what was under way when it was.
  class Call {
   public:
    virtual ~Call() = default;
    virtual void Cancel() = 0;
  };
  Result<std::shared_ptr<Call>> Start(ClientRequest request,
                                      std::shared_ptr<ClientHandler> handler);

 private:
  struct Impl;
  explicit HttpClientThread(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A whole answer, for callers that can wait for it.
struct ClientResponse {
  HttpResponseHead head;
  std::string body;
  ClientTimes times;
};
// Blocks. Makes a loop of its own; meant for probes, not for load. Bodies over `max_body` bytes are
// refused. `verify_tls` as in HttpClientOptions.
Result<ClientResponse> FetchBlocking(ClientRequest request, std::size_t max_body = 64 << 20,
                                     bool verify_tls = true);

}  // namespace tare::net
