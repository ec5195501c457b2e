#include "net/http_connection.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <exception>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace tare::net {

namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable_t<LoopExecutor>{});
constexpr std::size_t kFirstRead = 2048;          // most requests' heads fit
constexpr std::size_t kMaxBuffered = 64 * 1024;   // read ahead of a running request
constexpr std::size_t kKeptCapacity = 16 * 1024;  // buffers above this are given back
constexpr Nanos kLingerTimeout = std::chrono::seconds(2);

}  // namespace

Connection::Connection(std::shared_ptr<ServerShared> shared, Loop& loop, LoopSocket socket)
    : shared_(std::move(shared)),
      loop_(loop),
      socket_(std::move(socket)),
      stream_(socket_, loop.tls),
      wake_(loop.io.get_executor()),
      buffer_(shared_->options.max_header_bytes + kMaxBuffered) {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  const auto endpoint = socket_.remote_endpoint(ignored);
  if (!ignored) peer_ = endpoint.address().to_string();
}

void Connection::SetDeadline(Nanos from_now) { deadline_ = SteadyClock().Now() + from_now; }
void Connection::ClearDeadline() { deadline_ = Nanos::max(); }

void Connection::Close() {
  error_code ignored;
  socket_.close(ignored);
  wake_.cancel();
}

void Connection::CloseIfIdle() {
  if (phase_ == Phase::kIdle && buffer_.size() == 0) Close();
}

void Connection::ExpireIfLate(Nanos now) {
  if (now < deadline_) return;
  ClearDeadline();
  expired_ = true;
  error_code ignored;
  if (phase_ == Phase::kReading) {
    socket_.cancel(ignored);  // Run answers 408
  } else {
    Close();
  }
}

LoopAwaitable<void> Connection::Run(std::shared_ptr<Connection> self) {
  loop_.connections.insert(this);
  std::optional<Parser> parser;
  const bool secured = co_await Secure();
  while (secured && socket_.is_open() && co_await ReadRequest(parser)) {
    if (!co_await Respond(*parser)) break;
    parser.reset();
  }
  if (socket_.is_open()) Close();
  loop_.connections.erase(this);
  shared_->open.fetch_sub(1);
  self.reset();
}

// The TLS handshake, where there is one to make.
LoopAwaitable<bool> Connection::Secure() {
  if (!stream_.secured()) co_return true;
  SetDeadline(shared_->options.header_timeout);  // idle phase: a late one is closed
  auto [error] = co_await stream_.async_handshake(kAwait);
  ClearDeadline();
  if (error) shared_->bad_requests.fetch_add(1);
  co_return !error;
}

LoopAwaitable<bool> Connection::ReadRequest(std::optional<Parser>& parser) {
  const HttpServerOptions& options = shared_->options;
  phase_ = Phase::kIdle;
  if (buffer_.size() == 0) {
    if (shared_->draining.load() || client_closed_) co_return false;
    SetDeadline(options.idle_timeout);
    auto [error, count] = co_await stream_.async_read_some(buffer_.prepare(kFirstRead), kAwait);
    if (error) co_return false;
    buffer_.commit(count);
  }
  phase_ = Phase::kReading;
  SetDeadline(options.header_timeout);
  parser.emplace();
  parser->eager(true);  // the body too
  parser->header_limit(static_cast<std::uint32_t>(options.max_header_bytes));
  parser->body_limit(options.max_body_bytes);
  // Beast's own reading would go through the scheduler also for what is already here, which most
  // requests are as a whole.
  bool head_seen = false;
  std::size_t piece = kFirstRead;
  while (true) {
    error_code error;
    if (buffer_.size() > 0) {
      buffer_.consume(parser->put(buffer_.data(), error));
      if (error == http::error::need_more) error = {};
      if (error) {
        co_await RefuseRead(error, true);
        co_return false;
      }
      if (parser->is_done()) break;
    }
    if (parser->is_header_done() && !std::exchange(head_seen, true)) {
      SetDeadline(options.body_timeout);
      // A large body in large pieces.
      const auto left = parser->content_length_remaining();
      piece = std::clamp<std::size_t>(left.value_or(kKeptCapacity), kFirstRead, kMaxBuffered);
      if (!co_await SayContinue(*parser)) co_return false;
    }
    // What the parser cannot take yet stays in the buffer: a head, or the line before a chunk.
    const std::size_t room = buffer_.max_size() - buffer_.size();
    if (room == 0) {
      co_await RefuseRead(http::error::buffer_overflow, true);
      co_return false;
    }
    auto [failed, count] =
        co_await stream_.async_read_some(buffer_.prepare(std::min(piece, room)), kAwait);
    if (failed) {
      co_await RefuseRead(failed, parser->got_some() || buffer_.size() > 0);
      co_return false;
    }
    buffer_.commit(count);
  }
  ClearDeadline();
  co_return true;
}

// A client that asked waits for this before it sends the body (RFC 9110, 10.1.1). False: it left.
LoopAwaitable<bool> Connection::SayContinue(const Parser& parser) {
  const auto expect = parser.get()[http::field::expect];
  if (!EqualsIgnoreCase({expect.data(), expect.size()}, "100-continue")) co_return true;
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  auto [error, count] = co_await asio::async_write(stream_, asio::buffer(kContinue), kAwait);
  co_return !error;
}

LoopAwaitable<void> Connection::RefuseRead(error_code error, bool something_read) {
  const HttpServerOptions& options = shared_->options;
  if (error == asio::error::operation_aborted && expired_ && something_read) {
    co_await AnswerError(408, "the request did not arrive completely within the time limit");
  } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    co_await AnswerError(
        431, fmt::format("the request head is larger than {} bytes", options.max_header_bytes));
  } else if (error == http::error::body_limit) {
    co_await AnswerError(
        413, fmt::format("the request body is larger than {} bytes", options.max_body_bytes));
  } else if (error.category() == http::make_error_code(http::error::bad_method).category()) {
    co_await AnswerError(400, "malformed HTTP request: " + error.message());
  }
}

LoopAwaitable<void> Connection::AnswerError(int status, std::string message) {
  shared_->bad_requests.fetch_add(1);
  const HttpServerOptions& options = shared_->options;
  const std::string body = options.error_body ? options.error_body(status, message) : message;
  out_.clear();
  AppendStatusLine(out_, status);
  out_.append(fmt::format("Content-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                          options.error_content_type, body.size(), body));
  SetDeadline(options.write_timeout);
  phase_ = Phase::kLingering;
  auto [error, count] = co_await asio::async_write(stream_, asio::buffer(out_), kAwait);
  if (!error) co_await Linger();
}

// Closing with unread input would reset the connection and could destroy the answer on its way
// (RFC 9112, 9.6): say that no more comes, and read until the client closes too.
LoopAwaitable<void> Connection::Linger() {
  phase_ = Phase::kLingering;
  SetDeadline(kLingerTimeout);
  error_code failed;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, failed);
  buffer_.clear();
  while (!failed && !client_closed_ && socket_.is_open()) {
    auto [error, count] = co_await stream_.async_read_some(buffer_.prepare(kMaxBuffered), kAwait);
    failed = error;
  }
}

LoopAwaitable<void> Connection::TurnAway() {
  loop_.connections.insert(this);
  co_await AnswerError(503, "the server has reached its limit of connections; retry later");
  if (socket_.is_open()) Close();
  loop_.connections.erase(this);
  shared_->open.fetch_sub(1);
}

LoopAwaitable<bool> Connection::Respond(Parser& parser) {
  phase_ = Phase::kRunning;
  done_ = false;
  auto& message = parser.get();
  HttpRequest request;
  request.received = SteadyClock().Now();
  request.method.assign(message.method_string());
  request.target.assign(message.target());
  for (const auto& field : message) {
    request.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  }
  request.body = std::move(message.body());
  request.peer = peer_;

  Exchange::Facts facts;
  facts.keep_alive = message.keep_alive();
  facts.chunked = message.version() >= 11;
  facts.head = message.method() == http::verb::head;
  exchange_ = std::make_shared<Exchange>(shared_, facts, [this] {
    // Called with the exchange's mutex held and before Detach, so that the connection is alive.
    asio::post(loop_.io, [self = shared_from_this()] { self->Pump(); });
  });
  if (buffer_.size() == 0 && buffer_.capacity() > kKeptCapacity) buffer_.shrink_to_fit();
  try {
    shared_->handler(std::move(request), MakeWriter(exchange_));
  } catch (const std::exception& error) {
    LogError("a request handler failed: {}; the client got a 500", error.what());
  }
  exchange_->EnableWake();
  Pump();
  if (!done_) co_await Watch();
  exchange_.reset();
  if (!keep_alive_ && socket_.is_open()) co_await Linger();
  co_return keep_alive_;
}

// Waits for the exchange's end while watching for the client's.
LoopAwaitable<void> Connection::Watch() {
  while (!done_) {
    if (buffer_.size() >= kMaxBuffered) {
      wake_.expires_at(std::chrono::steady_clock::time_point::max());
      co_await wake_.async_wait(kAwait);
      continue;
    }
    auto [error, count] = co_await stream_.async_read_some(buffer_.prepare(kFirstRead), kAwait);
    if (!error) {
      buffer_.commit(count);
      continue;
    }
    client_closed_ =
        client_closed_ || error == asio::error::eof || error == asio::ssl::error::stream_truncated;
    if (!done_ && (error != asio::error::operation_aborted || !socket_.is_open())) {
      Finish(false, false);
    }
  }
}

// Moves what the writer left to the socket. Runs on the loop's thread only.
void Connection::Pump() {
  if (exchange_ == nullptr || done_ || writing_) return;
  out_.clear();
  written_ = 0;
  const Exchange::Progress progress = exchange_->Take(out_);
  if (!out_.empty()) {
    StartWrite();
  } else if (progress.cut) {
    Finish(false, false);
  } else if (progress.ended) {
    Finish(true, progress.keep_alive);
  }
}

void Connection::StartWrite() {
  writing_ = true;
  SetDeadline(shared_->options.write_timeout);
  stream_.async_write_some(asio::buffer(out_.data() + written_, out_.size() - written_),
                           [self = shared_from_this()](error_code error, std::size_t count) {
                             self->writing_ = false;
                             if (self->done_) return;
                             if (error) {
                               self->Finish(false, false);
                               return;
                             }
                             self->written_ += count;
                             if (self->written_ < self->out_.size()) {
                               self->StartWrite();
                               return;
                             }
                             self->ClearDeadline();
                             if (self->out_.capacity() > kKeptCapacity) self->out_ = std::string();
                             self->Pump();
                           });
}

void Connection::Finish(bool complete, bool keep_alive) {
  done_ = true;
  keep_alive_ = complete && keep_alive;
  ClearDeadline();
  exchange_->Detach(complete);
  error_code ignored;
  if (!complete) {
    Close();
  } else {
    socket_.cancel(ignored);  // ends the watch
    wake_.cancel();
  }
}

}  // namespace tare::net
