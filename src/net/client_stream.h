// A client's connection as a stream of bytes, plain or under TLS: what Asio and Beast read and
// write through. Internal to the server.
//
// Ownership: refers to the connection's socket. Thread safety: belongs to the loop's thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <optional>
#include <utility>

namespace tare::net {

namespace asio = boost::asio;
using LoopExecutor = asio::io_context::executor_type;
using LoopSocket = asio::basic_stream_socket<asio::ip::tcp, LoopExecutor>;

class ClientStream {
 public:
  using executor_type = LoopExecutor;

  // `tls` null: plain.
  ClientStream(LoopSocket& socket, std::shared_ptr<asio::ssl::context> tls)
      : socket_(socket), context_(std::move(tls)) {
    if (context_ != nullptr) tls_.emplace(socket_, *context_);
  }

  executor_type get_executor() { return socket_.get_executor(); }
  bool secured() const { return tls_.has_value(); }

  template <typename Token>
  auto async_handshake(Token&& token) {
    return tls_->async_handshake(asio::ssl::stream_base::server, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return socket_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return socket_.async_write_some(buffers, std::forward<Token>(token));
  }

 private:
  LoopSocket& socket_;
  std::shared_ptr<asio::ssl::context> context_;  // outlives the stream made of it
  std::optional<asio::ssl::stream<LoopSocket&>> tls_;
};

}  // namespace tare::net
