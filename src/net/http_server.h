// HTTP/1.1 server: keep-alive, chunked streams, limits, graceful drain.
//
// A handler is called on one of the server's I/O threads with a complete request and must not
// block there; it answers through the ResponseWriter now or later, from any thread.
//
//   Send            one complete response
//   StartStream, Write..., End    a chunked response (SSE and the like)
//
// Slow or hostile clients are bounded: request head and body sizes, a time limit for each phase of
// a request, and a limit on bytes a stream may have waiting for its client. A client that goes away
// (or half-closes its side) while a request runs is noticed at once: OnClose fires.
//
// Source: RFC 9112 (HTTP/1.1), RFC 9110 (semantics).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/event_loop.h"
#include "net/http_message.h"

namespace tare::net {

// The answer to one request. Thread safety: all methods may be called from any thread; calls that
// make no sense any more (after End, after the client left) do nothing. Dropping the last reference
// unanswered sends a 500; dropping it in mid-stream aborts the stream.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  // Content-Length and Connection are added; `headers` names the rest (Content-Type...).
  virtual void Send(int status, const HttpHeaders& headers, std::string body) = 0;
  virtual void StartStream(int status, const HttpHeaders& headers) = 0;
  // Queues one piece; false when the stream is over, for example because the client is too slow
  // (then the connection is closed and OnClose fires) or gone.
  virtual bool Write(std::string_view piece) = 0;
  virtual void End() = 0;
  // Closes the connection without the mark of a complete stream, so that the client sees a cut.
  virtual void Abort() = 0;
  // `callback` runs once, on an I/O thread or (when it is already over) on this one, if the
  // connection ends before the response has been handed over completely. Not called otherwise.
  virtual void OnClose(std::function<void()> callback) = 0;
  virtual bool closed() const = 0;
};

using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<ResponseWriter>)>;

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free one
  int threads = 1;
  // PEM files: set both to speak TLS (1.2 or newer) instead of plain HTTP.
  std::string tls_certificate_file;  // the chain, the server's own first
  std::string tls_key_file;
  std::size_t max_header_bytes = 16 * 1024;
  std::size_t max_body_bytes = 16 * 1024 * 1024;
  std::size_t max_connections = 10000;              // over all threads; more are turned away (503)
  std::size_t max_queued_bytes = 1024 * 1024;       // per stream, waiting for a slow client
  Nanos idle_timeout = std::chrono::seconds(75);    // between requests
  Nanos header_timeout = std::chrono::seconds(10);  // first byte to end of head
  Nanos body_timeout = std::chrono::seconds(60);    // end of head to end of body
  Nanos write_timeout = std::chrono::seconds(30);   // no byte taken by the client
  // Makes the body of the server's own error answers (400, 408, 413, 431, 500, 503).
  std::function<std::string(int status, const std::string& message)> error_body;
  std::string error_content_type = "text/plain";
};

struct HttpServerStats {
  std::uint64_t accepted = 0;  // connections
  std::uint64_t open = 0;
  std::uint64_t refused = 0;       // over max_connections
  std::uint64_t bad_requests = 0;  // answered by the server itself: malformed, too large, too slow
  std::uint64_t slow_clients = 0;  // streams closed because their queue was full
  std::uint64_t disconnects = 0;   // clients gone before their answer was complete
};

class HttpServer {
 public:
  // Listens when it returns. A certificate or key that cannot be used, a port in use and an address
  // that is not ours are named.
  static Result<std::unique_ptr<HttpServer>> Start(HttpServerOptions options, HttpHandler handler);
  // Closes what is open without waiting for running requests.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  HttpServerStats stats() const;

  // Lets the first I/O thread run `loop` as well, from now until the server's end: a handler whose
  // work goes on there crosses no thread. The loop outlives the server; once a server.
  Status Host(EventLoop* loop);

  // Reads certificate and key again, for connections from now on. On an error the old ones stay.
  Status ReloadCertificate();

  // Stops accepting, closes idle connections, lets running requests finish for up to `deadline`,
  // then closes the rest. True when all finished. Blocks; not to be called from a handler.
  bool Drain(Nanos deadline);

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tare::net
