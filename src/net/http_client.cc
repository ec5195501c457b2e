#include "net/http_client.h"

#include <netdb.h>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "net/client_connection.h"

namespace tare::net {
namespace {

constexpr std::size_t kReadBufferBytes = 256 << 10;
constexpr Nanos kNameLifetime = std::chrono::seconds(30);

struct Resolved {
  std::vector<Address> addresses;
  std::string error;  // when there are none
};

// `flags` AI_NUMERICHOST never waits; without it the call may take seconds.
Resolved Resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  Resolved resolved;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) {
    resolved.error = ::gai_strerror(code);
    return resolved;
  }
  for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
    Address address;
    if (item->ai_addrlen > sizeof address.storage) continue;
    std::copy_n(reinterpret_cast<const char*>(item->ai_addr), item->ai_addrlen,
                reinterpret_cast<char*>(&address.storage));
    address.size = item->ai_addrlen;
    resolved.addresses.push_back(address);
  }
  ::freeaddrinfo(list);
  if (resolved.addresses.empty()) resolved.error = "it has no address";
  return resolved;
}

bool HasLineBreak(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return c == '\r' || c == '\n' || c == '\0'; });
}

std::string Serialize(const ClientRequest& request) {
  std::string text;
  text.reserve(256 + request.body.size());
  text.append(request.method).append(" ").append(request.url.target).append(" HTTP/1.1\r\n");
  text.append("Host: ").append(request.url.Authority()).append("\r\n");
  for (const HttpHeader& header : request.headers) {
    text.append(header.name).append(": ").append(header.value).append("\r\n");
  }
  if (!request.body.empty() || (request.method != "GET" && request.method != "HEAD")) {
    text.append(fmt::format("Content-Length: {}\r\n", request.body.size()));
  }
  text.append("\r\n").append(request.body);
  return text;
}

}  // namespace

const char* ToString(ClientFailureKind kind) {
  switch (kind) {
    case ClientFailureKind::kResolve:
      return "resolve";
    case ClientFailureKind::kConnectRefused:
      return "connect_refused";
    case ClientFailureKind::kConnectTimeout:
      return "connect_timeout";
    case ClientFailureKind::kConnectFailed:
      return "connect_failed";
    case ClientFailureKind::kTls:
      return "tls";
    case ClientFailureKind::kReset:
      return "reset";
    case ClientFailureKind::kClosedEarly:
      return "closed_early";
    case ClientFailureKind::kFirstByteTimeout:
      return "first_byte_timeout";
    case ClientFailureKind::kIdleTimeout:
      return "idle_timeout";
    case ClientFailureKind::kTotalTimeout:
      return "total_timeout";
    case ClientFailureKind::kBadResponse:
      return "bad_response";
  }
  return "unknown";
}

struct HttpClient::Impl final : ClientConnection::Owner {
  struct Call {
    std::uint64_t id = 0;
    ClientRequest request;
    std::string origin;
    std::shared_ptr<ClientHandler> handler;
    ClientTimes times;
    ClientConnection* connection = nullptr;
    EventLoop::TimerId timer;
    Nanos last_piece{0};
  };
  struct Name {
    std::vector<Address> addresses;
    Nanos expires{0};
    bool asking = false;
    std::vector<std::uint64_t> waiting;  // calls
  };

  explicit Impl(EventLoop* l, HttpClientOptions o) : loop(l), options(std::move(o)) {
    buffer.resize(kReadBufferBytes);
  }
  ~Impl() override {
    for (auto& [id, call] : calls) loop->CancelTimer(call->timer);
    for (auto& [pointer, connection] : connections) {
      connection->Close();
      loop->Retire(std::move(connection));
    }
  }

  EventLoop* loop;
  HttpClientOptions options;
  std::string buffer;
  Histogram receive_lag{7};
  std::shared_ptr<TlsContext> tls;
  std::uint64_t next_id = 1;
  std::unordered_map<std::uint64_t, std::unique_ptr<Call>> calls;
  std::unordered_map<ClientConnection*, std::unique_ptr<ClientConnection>> connections;
  std::unordered_map<std::string, std::vector<ClientConnection*>> idle;  // by origin
  std::map<std::string, Name> names;                                     // by origin
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);

  std::string& read_buffer() override { return buffer; }
  void OnReceiveLag(Nanos lag) override { receive_lag.Add(lag.count()); }

  Call* Find(std::uint64_t id) {
    const auto it = calls.find(id);
    return it == calls.end() ? nullptr : it->second.get();
  }

  // ----- deadlines

  // The time by which the call's present phase must be over; zero: none.
  Nanos Deadline(const Call& call, ClientFailureKind& kind) const {
    const ClientRequest& request = call.request;
    Nanos deadline{0};
    const auto consider = [&](Nanos from, Nanos limit, ClientFailureKind if_passed) {
      if (limit == Nanos(0) || from == Nanos(0)) return;
      if (deadline == Nanos(0) || from + limit < deadline) {
        deadline = from + limit;
        kind = if_passed;
      }
    };
    consider(call.times.started, request.total_timeout, ClientFailureKind::kTotalTimeout);
    if (call.times.sent == Nanos(0)) {
      consider(call.times.started, request.connect_timeout, ClientFailureKind::kConnectTimeout);
    } else if (call.times.first_byte == Nanos(0)) {
      consider(call.times.sent, request.first_byte_timeout, ClientFailureKind::kFirstByteTimeout);
    } else {
      consider(call.last_piece, request.idle_timeout, ClientFailureKind::kIdleTimeout);
    }
    return deadline;
  }

  // Sets the timer when the present phase ends before what it is set to. A later deadline needs no
  // work: the timer looks again when it fires.
  void Arm(Call& call) {
    ClientFailureKind kind{};
    const Nanos deadline = Deadline(call, kind);
    if (deadline == Nanos(0)) return;
    if (call.timer.serial != 0 && call.timer.when <= deadline) return;
    loop->CancelTimer(call.timer);
    call.timer = loop->RunAt(deadline, [this, id = call.id] { OnTimer(id); });
  }

  void OnTimer(std::uint64_t id) {
    Call* call = Find(id);
    if (call == nullptr) return;
    call->timer = {};
    ClientFailureKind kind{};
    const Nanos deadline = Deadline(*call, kind);
    if (deadline == Nanos(0) || deadline > MonotonicNow()) {
      Arm(*call);
      return;
    }
    const bool connecting = kind == ClientFailureKind::kConnectTimeout;
    Finish(id, ClientFailure{kind, Error{ErrorKind::kDeadlineExceeded,
                                         fmt::format("{}: {} within {:.3g} s", call->origin,
                                                     connecting ? "no connection"
                                                     : kind == ClientFailureKind::kIdleTimeout
                                                         ? "nothing more of the answer came"
                                                     : kind == ClientFailureKind::kTotalTimeout
                                                         ? "the answer did not end"
                                                         : "no answer began",
                                                     ToSeconds(Limit(call->request, kind))),
                                         {}}});
  }

  static Nanos Limit(const ClientRequest& request, ClientFailureKind kind) {
    switch (kind) {
      case ClientFailureKind::kConnectTimeout:
        return request.connect_timeout;
      case ClientFailureKind::kFirstByteTimeout:
        return request.first_byte_timeout;
      case ClientFailureKind::kIdleTimeout:
        return request.idle_timeout;
      default:
        return request.total_timeout;
    }
  }

  // ----- the course of a call

  void Begin(std::uint64_t id, bool fresh_connection) {
    Call* call = Find(id);
    if (call == nullptr) return;
    if (!fresh_connection) {
      std::vector<ClientConnection*>& kept = idle[call->origin];
      if (!kept.empty()) {
        ClientConnection* connection = kept.back();
        kept.pop_back();
        call->times.reused = true;
        call->times.resolved = call->times.connected = call->times.started;
        Give(*call, *connection);
        OnConnected(*connection);
        return;
      }
    }
    call->times.reused = false;
    Name& name = names[call->origin];
    if (!name.addresses.empty() && name.expires > MonotonicNow()) {
      Open(*call, name.addresses);
      return;
    }
    Resolved numeric = Resolve(call->request.url.host, call->request.url.port, AI_NUMERICHOST);
    if (!numeric.addresses.empty()) {
      name.addresses = std::move(numeric.addresses);
      name.expires = Nanos::max();
      Open(*call, name.addresses);
      return;
    }
    name.waiting.push_back(id);
    if (name.asking) return;
    name.asking = true;
    // getaddrinfo waits for name servers: a thread of its own does, and posts what it learns.
    std::thread([mailbox = loop->mailbox(), weak = std::weak_ptr<bool>(alive), this,
                 origin = call->origin, host = call->request.url.host,
                 port = call->request.url.port] {
      auto resolved = std::make_shared<Resolved>(Resolve(host, port, 0));
      mailbox->Post([weak, this, origin, resolved] {
        if (!weak.expired()) OnResolved(origin, std::move(*resolved));
      });
    }).detach();
  }

  void OnResolved(const std::string& origin, Resolved resolved) {
    Name& name = names[origin];
    name.asking = false;
    name.addresses = std::move(resolved.addresses);
    name.expires = MonotonicNow() + kNameLifetime;
    std::vector<std::uint64_t> waiting;
    waiting.swap(name.waiting);
    for (const std::uint64_t id : waiting) {
      Call* call = Find(id);
      if (call == nullptr) continue;
      if (name.addresses.empty()) {
        Finish(id, ClientFailure{ClientFailureKind::kResolve,
                                 Error{ErrorKind::kNetwork,
                                       fmt::format("cannot find the address of '{}': {}",
                                                   call->request.url.host, resolved.error),
                                       {}}});
      } else {
        Open(*call, name.addresses);
      }
    }
  }

  void Open(Call& call, const std::vector<Address>& addresses) {
    call.times.resolved = MonotonicNow();
    std::shared_ptr<TlsContext> context;
    if (call.request.url.tls) {
      if (tls == nullptr) {
        Result<std::shared_ptr<TlsContext>> made = TlsContext::Create(options);
        if (!made) {
          loop->RunAt(Nanos(0), [this, weak = std::weak_ptr<bool>(alive), id = call.id,
                                 error = made.error()] {
            if (!weak.expired()) Finish(id, ClientFailure{ClientFailureKind::kTls, error});
          });
          return;
        }
        tls = *std::move(made);
      }
      context = tls;
    }
    auto connection =
        std::make_unique<ClientConnection>(loop, this, call.origin, options.kernel_receipts);
    ClientConnection* pointer = connection.get();
    connections.emplace(pointer, std::move(connection));
    Give(call, *pointer);
    pointer->times = &call.times;
    pointer->Connect(addresses, call.request.url.host, std::move(context));
  }

  void Give(Call& call, ClientConnection& connection) {
    call.connection = &connection;
    connection.call = call.id;
  }

  void OnConnected(ClientConnection& connection) override {
    Call* call = Find(connection.call);
    if (call == nullptr) return Drop(connection);
    connection.Send(Serialize(call->request), call->request.method == "HEAD", &call->times);
    Arm(*call);
  }

  void OnSent(ClientConnection&) override {}

  void OnHead(ClientConnection& connection, const HttpResponseHead& head) override {
    if (Call* call = Find(connection.call)) {
      call->last_piece = call->times.first_byte;
      Arm(*call);
      const std::shared_ptr<ClientHandler> handler = call->handler;
      handler->OnHead(head, call->times);
    }
  }

  void OnBody(ClientConnection& connection, std::string_view piece, Nanos received) override {
    if (Call* call = Find(connection.call)) {
      call->last_piece = received;
      // The call, and with it the last reference, may go while its handler is at work.
      const std::shared_ptr<ClientHandler> handler = call->handler;
      handler->OnBody(piece, received);
    }
  }

  void OnResponseEnd(ClientConnection& connection, bool reusable, Nanos received) override {
    const std::uint64_t id = connection.call;
    connection.call = 0;
    connection.times = nullptr;
    if (Call* call = Find(id)) {
      call->connection = nullptr;
      call->times.ended = received;
    }
    std::vector<ClientConnection*>& kept = idle[connection.origin()];
    if (reusable && kept.size() < options.max_idle_per_origin) {
      kept.push_back(&connection);
    } else {
      Drop(connection);
    }
    Finish(id, std::nullopt);
  }

  void OnBroken(ClientConnection& connection, ClientFailure failure) override {
    const std::uint64_t id = connection.call;
    const bool answered = connection.answered();
    Drop(connection);
    Call* call = Find(id);
    if (call == nullptr) return;
    call->connection = nullptr;
    const bool stale = call->times.reused && !answered &&
                       (failure.kind == ClientFailureKind::kClosedEarly ||
                        failure.kind == ClientFailureKind::kReset);
    if (stale) {
      ++call->times.resent;
      call->times.sent = call->times.sent_all = Nanos(0);
      Begin(id, /*fresh_connection=*/true);
      return;
    }
    Finish(id, std::move(failure));
  }

  // Ends the call: tells the handler (`failure` absent: it is done) and forgets it.
  void Finish(std::uint64_t id, std::optional<ClientFailure> failure) {
    const auto it = calls.find(id);
    if (it == calls.end()) return;
    const std::unique_ptr<Call> call = std::move(it->second);
    calls.erase(it);
    loop->CancelTimer(call->timer);
    if (call->connection != nullptr) Drop(*call->connection);
    if (call->times.ended == Nanos(0)) call->times.ended = MonotonicNow();
    if (failure) {
      call->handler->OnFailure(*failure, call->times);
    } else {
      call->handler->OnDone(call->times);
    }
  }

  void Drop(ClientConnection& connection) {
    connection.Close();
    connection.call = 0;
    connection.times = nullptr;
    std::vector<ClientConnection*>& kept = idle[connection.origin()];
    kept.erase(std::remove(kept.begin(), kept.end(), &connection), kept.end());
    const auto it = connections.find(&connection);
    if (it == connections.end()) return;
    loop->Retire(std::move(it->second));
    connections.erase(it);
  }
};

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClient::~HttpClient() = default;

Result<std::unique_ptr<HttpClient>> HttpClient::Create(EventLoop* loop, HttpClientOptions options) {
  return std::unique_ptr<HttpClient>(
      new HttpClient(std::make_unique<Impl>(loop, std::move(options))));
}

namespace {

Status CheckRequest(const ClientRequest& request) {
  bool broken = HasLineBreak(request.method) || HasLineBreak(request.url.target) ||
                HasLineBreak(request.url.host) || request.method.empty();
  for (const HttpHeader& header : request.headers) {
    if (header.name.empty() || HasLineBreak(header.name) || HasLineBreak(header.value)) {
      return FailParam(header.name, "header '{}' holds a line break and cannot be sent",
                       HasLineBreak(header.name) ? "?" : header.name);
    }
  }
  if (broken) {
    return Fail(ErrorKind::kInvalidArgument, "the request line holds a line break");
  }
  return {};
}

}  // namespace

Result<HttpClient::CallId> HttpClient::Start(ClientRequest request,
                                             std::shared_ptr<ClientHandler> handler) {
  TARE_RETURN_IF_ERROR(CheckRequest(request));
  auto call = std::make_unique<Impl::Call>();
  call->id = impl_->next_id++;
  call->origin = request.url.Origin();
  call->request = std::move(request);
  call->handler = std::move(handler);
  call->times.started = MonotonicNow();
  const std::uint64_t id = call->id;
  Impl::Call& kept = *call;
  impl_->calls.emplace(id, std::move(call));
  impl_->Arm(kept);
  impl_->Begin(id, /*fresh_connection=*/false);
  return CallId{id};
}

void HttpClient::Cancel(CallId id) {
  const auto it = impl_->calls.find(static_cast<std::uint64_t>(id));
  if (it == impl_->calls.end()) return;
  const std::unique_ptr<Impl::Call> call = std::move(it->second);
  impl_->calls.erase(it);
  impl_->loop->CancelTimer(call->timer);
  if (call->connection != nullptr) impl_->Drop(*call->connection);
}

std::size_t HttpClient::running() const { return impl_->calls.size(); }
const Histogram& HttpClient::receive_lag() const { return impl_->receive_lag; }
std::size_t HttpClient::open_connections() const { return impl_->connections.size(); }

// ----- HttpClientThread

struct HttpClientThread::Impl {
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<HttpClient> client;
  std::thread thread;

  ~Impl() {
    // The client goes on its own thread, where its connections live.
    loop->Post([this] {
      client.reset();
      loop->Stop();
    });
    if (thread.joinable()) thread.join();
  }
};

HttpClientThread::HttpClientThread(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClientThread::~HttpClientThread() = default;

Result<std::unique_ptr<HttpClientThread>> HttpClientThread::Create(HttpClientOptions options) {
  TARE_TRY(std::unique_ptr<EventLoop> loop, EventLoop::Create());
  auto impl = std::make_unique<Impl>();
  impl->loop = std::move(loop);
  TARE_TRY(impl->client, HttpClient::Create(impl->loop.get(), std::move(options)));
  impl->thread = std::thread([raw = impl->loop.get()] { raw->Run(); });
  return std::unique_ptr<HttpClientThread>(new HttpClientThread(std::move(impl)));
}

namespace {

struct ThreadCall final : HttpClientThread::Call {
  std::shared_ptr<EventLoop::Mailbox> mailbox;
  // Shared with the tasks that start and cancel the call; touched on the loop's thread only.
  struct State {
    HttpClient* client = nullptr;
    HttpClient::CallId id{0};
    bool cancelled = false;
  };
  std::shared_ptr<State> state = std::make_shared<State>();

  void Cancel() override {
    mailbox->Post([s = state] {
      s->cancelled = true;
      if (s->client != nullptr) s->client->Cancel(s->id);
    });
  }
};

}  // namespace

Result<std::shared_ptr<HttpClientThread::Call>> HttpClientThread::Start(
    ClientRequest request, std::shared_ptr<ClientHandler> handler) {
  TARE_RETURN_IF_ERROR(CheckRequest(request));
  auto call = std::make_shared<ThreadCall>();
  call->mailbox = impl_->loop->mailbox();
  auto shared_request = std::make_shared<ClientRequest>(std::move(request));
  impl_->loop->Post(
      [state = call->state, impl = impl_.get(), shared_request, h = std::move(handler)]() mutable {
        if (state->cancelled || impl->client == nullptr) return;
        const auto id = impl->client->Start(std::move(*shared_request), std::move(h));
        if (!id) return;  // checked above
        state->client = impl->client.get();
        state->id = *id;
      });
  return std::shared_ptr<Call>(std::move(call));
}

// ----- FetchBlocking

namespace {

struct BlockingHandler final : ClientHandler {
  EventLoop* loop = nullptr;
  std::size_t max_body = 0;
  ClientResponse response;
  std::optional<Error> error;

  void OnHead(const HttpResponseHead& head, const ClientTimes&) override { response.head = head; }
  void OnBody(std::string_view piece, Nanos) override {
    if (response.body.size() + piece.size() > max_body) {
      if (!error) {
        error = Error{ErrorKind::kUnsupported,
                      fmt::format("the answer is longer than {} bytes", max_body),
                      {}};
      }
      loop->Stop();
      return;
    }
    response.body.append(piece);
  }
  void OnDone(const ClientTimes& times) override {
    response.times = times;
    loop->Stop();
  }
  void OnFailure(const ClientFailure& failure, const ClientTimes&) override {
    error = failure.error;
    loop->Stop();
  }
};

}  // namespace

Result<ClientResponse> FetchBlocking(ClientRequest request, std::size_t max_body, bool verify_tls) {
  TARE_TRY(const std::unique_ptr<EventLoop> loop, EventLoop::Create());
  HttpClientOptions options;
  options.verify_tls = verify_tls;
  TARE_TRY(const std::unique_ptr<HttpClient> client, HttpClient::Create(loop.get(), options));
  auto handler = std::make_shared<BlockingHandler>();
  handler->loop = loop.get();
  handler->max_body = max_body;
  TARE_TRY([[maybe_unused]] const HttpClient::CallId id,
           client->Start(std::move(request), handler));
  loop->Run();
  if (handler->error) return tl::unexpected(std::move(*handler->error));
  return std::move(handler->response);
}

}  // namespace tare::net
