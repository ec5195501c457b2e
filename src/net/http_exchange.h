// One request's answer on its way out: the meeting point of the writer (any thread) and the
// connection (its loop's thread). Internal to the server; free of Boost.
//
// Thread safety: the mutex guards everything. Callbacks into the connection (`wake`) are made while
// it is held, so that Detach() is the end of them; `wake` only posts to the loop.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "net/http_server.h"

namespace tare::net {

// What all connections of a server share.
struct ServerShared {
  HttpServerOptions options;
  HttpHandler handler;
  std::atomic<bool> draining{false};
  std::atomic<std::uint64_t> accepted{0}, open{0}, refused{0}, bad_requests{0}, slow_clients{0},
      disconnects{0};
};

// "HTTP/1.1 200 OK\r\nDate: ...\r\n", with the date of now.
void AppendStatusLine(std::string& out, int status);

class Exchange {
 public:
  struct Facts {
    bool keep_alive = true;  // what the request allows
    bool chunked = true;     // HTTP/1.1 client
    bool head = false;       // HEAD: no body goes out
  };
  Exchange(std::shared_ptr<ServerShared> shared, Facts facts, std::function<void()> wake);

  // Writer side.
  void Send(int status, const HttpHeaders& headers, std::string_view body);
  void StartStream(int status, const HttpHeaders& headers);
  bool Write(std::string_view piece);
  void End();
  void Abort();
  void Abandon();  // the last writer is gone
  void OnClose(std::function<void()> callback);
  bool closed() const;

  // Connection side.
  struct Progress {
    bool ended = false;       // nothing follows what was taken
    bool cut = false;         // close the connection now (after writing what was taken)
    bool keep_alive = false;  // when ended: the connection may carry another request
  };
  // Swaps the waiting bytes into `out` (which must be empty).
  Progress Take(std::string& out);
  // From here on the writer wakes the connection; before, the connection looks by itself.
  void EnableWake();
  // The connection is done with this exchange. Unless `complete`, fires OnClose.
  void Detach(bool complete);

 private:
  void AppendHead(int status, const HttpHeaders& headers, const std::string* length);
  void Wake();  // mutex held

  const std::shared_ptr<ServerShared> shared_;
  const Facts facts_;
  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::function<void()> on_close_;
  std::string pending_;
  bool wake_enabled_ = false;
  bool wake_sent_ = false;  // since the last Take
  bool started_ = false;
  bool ended_ = false;
  bool cut_ = false;
  bool keep_alive_ = false;
  bool detached_ = false;
  bool complete_ = false;
};

// The handle handlers hold.
std::shared_ptr<ResponseWriter> MakeWriter(std::shared_ptr<Exchange> exchange);

}  // namespace tare::net
