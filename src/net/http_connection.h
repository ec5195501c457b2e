// One client connection of the HTTP server, as a coroutine on its loop's thread. Internal to the
// server: the only headers that know Boost are this one and the .cc files beside it.
//
// Thread safety: everything runs on the thread of the loop the connection belongs to; Exchange is
// the door for others.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <string>
#include <unordered_set>

#include "net/client_stream.h"
#include "net/http_exchange.h"

namespace tare::net {

template <typename T>
using LoopAwaitable = asio::awaitable<T, LoopExecutor>;

class Connection;

// One thread's share of the server.
struct Loop {
  asio::io_context io{1};
  std::shared_ptr<asio::ssl::context> tls;  // of new connections; null: plain
  std::unordered_set<Connection*> connections;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerShared> shared, Loop& loop, LoopSocket socket);
  // Serves requests until the connection ends. `self` keeps it alive.
  LoopAwaitable<void> Run(std::shared_ptr<Connection> self);

  void CloseIfIdle();              // drain
  void Close();                    // whatever is running
  void ExpireIfLate(Nanos now);    // called by the loop's sweep
  LoopAwaitable<void> TurnAway();  // over the connection limit

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class Phase { kIdle, kReading, kRunning, kLingering };

  LoopAwaitable<bool> Secure();
  void SetDeadline(Nanos from_now);
  void ClearDeadline();
  // Reads one request. False: the connection is over (an error answer has been sent if one is due).
  LoopAwaitable<bool> ReadRequest(std::optional<Parser>& parser);
  LoopAwaitable<bool> SayContinue(const Parser& parser);
  LoopAwaitable<void> RefuseRead(boost::system::error_code error, bool something_read);
  LoopAwaitable<void> AnswerError(int status, std::string message);
  // Hands the request to the handler and sees its answer out. False: close the connection.
  LoopAwaitable<bool> Respond(Parser& parser);
  LoopAwaitable<void> Watch();
  void Pump();
  void StartWrite();
  void Finish(bool complete, bool keep_alive);
  LoopAwaitable<void> Linger();

  const std::shared_ptr<ServerShared> shared_;
  Loop& loop_;
  LoopSocket socket_;
  ClientStream stream_;
  asio::basic_waitable_timer<std::chrono::steady_clock,
                             asio::wait_traits<std::chrono::steady_clock>, LoopExecutor>
      wake_;
  std::string peer_;
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<Exchange> exchange_;  // the running one
  std::string out_;                     // being written
  std::size_t written_ = 0;
  bool writing_ = false;
  bool done_ = false;  // the running exchange is over
  bool keep_alive_ = false;
  bool expired_ = false;
  // The client has closed its side. Remembered, because Asio reports an end of file once: a read
  // after it would wait for an event that never comes.
  bool client_closed_ = false;
  Phase phase_ = Phase::kIdle;
  Nanos deadline_ = Nanos::max();
};

}  // namespace tare::net
