#include "net/http_server.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "net/http_connection.h"

namespace tare::net {

namespace {

using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable_t<LoopExecutor>{});
using LoopTimer =
    asio::basic_waitable_timer<std::chrono::steady_clock,
                               asio::wait_traits<std::chrono::steady_clock>, LoopExecutor>;
using LoopAcceptor = asio::basic_socket_acceptor<tcp, LoopExecutor>;
using LoopDescriptor = asio::posix::basic_stream_descriptor<LoopExecutor>;

// The soft limit of 1,024 open files that most systems start with is far below what a server of
// streams needs; the hard limit is ours to use.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

Error ListenError(const HttpServerOptions& options, const error_code& error) {
  if (error == asio::error::address_in_use) {
    return {ErrorKind::kUnavailable,
            fmt::format("port {} on {} is already in use; stop the program that listens there or "
                        "choose another with --port (0 takes any free one)",
                        options.port, options.host),
            "port"};
  }
  if (error == asio::error::access_denied) {
    return {ErrorKind::kUnavailable,
            fmt::format("not allowed to listen on port {}; ports below 1024 need rights, choose "
                        "another with --port",
                        options.port),
            "port"};
  }
  return {ErrorKind::kNetwork,
          fmt::format("cannot listen on {}:{}: {}; check --host", options.host, options.port,
                      error.message()),
          "host"};
}

Result<std::shared_ptr<asio::ssl::context>> MakeTls(const HttpServerOptions& options) {
  if (options.tls_certificate_file.empty() != options.tls_key_file.empty()) {
    return FailParam("tls", "TLS needs both a certificate and its key");
  }
  if (options.tls_certificate_file.empty()) return std::shared_ptr<asio::ssl::context>();
  auto tls = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code error;
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                       asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                       asio::ssl::context::no_tlsv1_1,
                   error);
  tls->use_certificate_chain_file(options.tls_certificate_file, error);
  if (error) {
    return FailParam("tls_certificate", "cannot use the certificate '{}': {}",
                     options.tls_certificate_file, error.message());
  }
  tls->use_private_key_file(options.tls_key_file, asio::ssl::context::pem, error);
  if (error) {
    return FailParam("tls_key", "cannot use the key '{}' with the certificate '{}': {}",
                     options.tls_key_file, options.tls_certificate_file, error.message());
  }
  return tls;
}

}  // namespace

struct HttpServer::Impl {
  struct Worker {
    Loop loop;
    asio::executor_work_guard<LoopExecutor> guard{loop.io.get_executor()};
    std::unique_ptr<LoopTimer> sweep;
    std::thread thread;
  };

  std::shared_ptr<ServerShared> shared = std::make_shared<ServerShared>();
  std::vector<std::unique_ptr<Worker>> workers;
  std::unique_ptr<LoopAcceptor> acceptor;     // on the first worker's loop
  std::unique_ptr<LoopDescriptor> host_door;  // of the loop it hosts; on the first worker's loop
  std::uint16_t port = 0;
  Nanos sweep_interval{};
  std::mutex mutex;
  std::condition_variable closed;  // `open` went down

  Status Listen() {
    const HttpServerOptions& options = shared->options;
    error_code error;
    const auto address =
        asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
    if (error) {
      return FailParam(
          "host",
          "'{}' is not an IP address to listen on; use 127.0.0.1, 0.0.0.0 or ::", options.host);
    }
    const tcp::endpoint endpoint(address, options.port);
    acceptor = std::make_unique<LoopAcceptor>(workers[0]->loop.io.get_executor());
    acceptor->open(endpoint.protocol(), error);
    if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor->bind(endpoint, error);
    if (!error) acceptor->listen(tcp::acceptor::max_listen_connections, error);
    if (error) return tl::unexpected(ListenError(options, error));
    port = acceptor->local_endpoint(error).port();
    return {};
  }

  LoopAwaitable<void> Accept() {
    std::size_t next = 0;
    while (acceptor->is_open()) {
      Loop& loop = workers[next++ % workers.size()]->loop;
      auto [error, socket] = co_await acceptor->async_accept(loop.io.get_executor(), kAwait);
      if (error == asio::error::operation_aborted || !acceptor->is_open()) break;
      if (error) {
        // Most likely no file descriptors are left; some come back as clients finish.
        LogWarn("cannot accept a connection: {}; trying again in 100 ms", error.message());
        LoopTimer pause(workers[0]->loop.io.get_executor(), std::chrono::milliseconds(100));
        co_await pause.async_wait(kAwait);
        continue;
      }
      shared->accepted.fetch_add(1);
      const std::uint64_t open = shared->open.fetch_add(1) + 1;
      const bool full = open > shared->options.max_connections;
      if (full) shared->refused.fetch_add(1);
      asio::co_spawn(loop.io.get_executor(), Serve(loop, std::move(socket), full), asio::detached);
    }
  }

  // On the loop's own thread, which the connection belongs to from its making.
  LoopAwaitable<void> Serve(Loop& loop, LoopSocket socket, bool full) {
    auto connection = std::make_shared<Connection>(shared, loop, std::move(socket));
    if (full) {
      co_await connection->TurnAway();
    } else {
      co_await connection->Run(connection);
    }
    std::lock_guard lock(mutex);
    closed.notify_all();
  }

  // One timer per loop looks at every connection's deadline: cheaper than arming a timer for each
  // phase of each request, and late by at most one interval.
  LoopAwaitable<void> Sweep(Worker& worker) {
    while (true) {
      worker.sweep->expires_after(sweep_interval);
      auto [error] = co_await worker.sweep->async_wait(kAwait);
      if (error) co_return;
      const Nanos now = SteadyClock().Now();
      for (Connection* connection : worker.loop.connections) connection->ExpireIfLate(now);
    }
  }

  void Run() {
    for (auto& worker : workers) {
      worker->sweep = std::make_unique<LoopTimer>(worker->loop.io.get_executor());
      asio::co_spawn(worker->loop.io.get_executor(), Sweep(*worker), asio::detached);
      worker->thread = std::thread([&io = worker->loop.io] { io.run(); });
    }
    asio::co_spawn(workers[0]->loop.io.get_executor(), Accept(), asio::detached);
  }

  void StopAccepting() {
    shared->draining.store(true);
    asio::post(workers[0]->loop.io, [this] {
      error_code ignored;
      acceptor->close(ignored);
    });
  }

  void ForEachConnection(void (Connection::*action)()) {
    for (auto& worker : workers) {
      asio::post(worker->loop.io, [&loop = worker->loop, action] {
        for (Connection* connection : loop.connections) (connection->*action)();
      });
    }
  }

  // A round of the guest loop whenever its descriptor says that there is work.
  LoopAwaitable<void> Drive(EventLoop* guest) {
    guest->Adopt();
    while (host_door->is_open()) {
      guest->RunReady();
      auto [error] =
          co_await host_door->async_wait(asio::posix::descriptor_base::wait_read, kAwait);
      if (error) break;
    }
    guest->Abandon();
  }

  Status Host(EventLoop* guest) {
    host_door = std::make_unique<LoopDescriptor>(workers[0]->loop.io.get_executor());
    error_code failed;
    host_door->assign(::dup(guest->fd()), failed);
    if (failed) {
      return Fail(ErrorKind::kResourceExhausted,
                  "cannot watch the router's loop: {}; raise the limit of open files (ulimit -n)",
                  failed.message());
    }
    asio::co_spawn(workers[0]->loop.io.get_executor(), Drive(guest), asio::detached);
    return {};
  }

  bool WaitUntilClosed(Nanos deadline) {
    std::unique_lock lock(mutex);
    return closed.wait_for(lock, deadline, [this] { return shared->open.load() == 0; });
  }

  bool Drain(Nanos deadline) {
    StopAccepting();
    ForEachConnection(&Connection::CloseIfIdle);
    if (WaitUntilClosed(deadline)) return true;
    CloseAll();
    return false;
  }

  void CloseAll() {
    // A connection accepted just before is registered a moment later: ask again until none is left.
    do {
      ForEachConnection(&Connection::Close);
    } while (!WaitUntilClosed(std::chrono::milliseconds(50)));
  }

  ~Impl() {
    if (workers.empty() || !workers[0]->thread.joinable()) return;
    StopAccepting();
    CloseAll();
    asio::post(workers[0]->loop.io, [this] {
      error_code ignored;
      if (host_door != nullptr) host_door->close(ignored);
    });
    for (auto& worker : workers) {
      asio::post(worker->loop.io, [&w = *worker] { w.sweep->cancel(); });
      worker->guard.reset();
    }
    for (auto& worker : workers) worker->thread.join();
  }
};

Result<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options,
                                                      HttpHandler handler) {
  RaiseFileLimit();
  auto impl = std::make_unique<Impl>();
  const int threads = std::max(1, options.threads);
  // Eight looks per shortest limit keep the error of a deadline small; 1 s suffices for real ones.
  const Nanos shortest = std::min(
      {options.idle_timeout, options.header_timeout, options.body_timeout, options.write_timeout});
  impl->sweep_interval =
      std::clamp<Nanos>(shortest / 8, std::chrono::milliseconds(5), std::chrono::seconds(1));
  impl->shared->options = std::move(options);
  impl->shared->handler = std::move(handler);
  for (int i = 0; i < threads; ++i) impl->workers.push_back(std::make_unique<Impl::Worker>());
  TARE_TRY(const auto tls, MakeTls(impl->shared->options));
  for (auto& worker : impl->workers) worker->loop.tls = tls;
  TARE_RETURN_IF_ERROR(impl->Listen());
  impl->Run();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const { return impl_->port; }

HttpServerStats HttpServer::stats() const {
  const ServerShared& shared = *impl_->shared;
  return {shared.accepted.load(),     shared.open.load(),         shared.refused.load(),
          shared.bad_requests.load(), shared.slow_clients.load(), shared.disconnects.load()};
}

Status HttpServer::ReloadCertificate() {
  TARE_TRY(auto tls, MakeTls(impl_->shared->options));
  for (auto& worker : impl_->workers) {
    asio::post(worker->loop.io, [&loop = worker->loop, tls] { loop.tls = tls; });
  }
  return {};
}

Status HttpServer::Host(EventLoop* loop) { return impl_->Host(loop); }

bool HttpServer::Drain(Nanos deadline) { return impl_->Drain(deadline); }

}  // namespace tare::net
