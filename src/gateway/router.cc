#include "gateway/router.h"

#include <atomic>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>

#include "api/wire_error.h"
#include "gateway/local_origin.h"

namespace tare::gateway {

namespace {

// An upstream at work. The atomics are read by Stats.
struct Server {
  Server(std::string server_name, CircuitBreaker::Options options, int limit)
      : name(std::move(server_name)), breaker(options), max_concurrent(limit) {}

  const std::string name;
  std::unique_ptr<Origin> origin;
  std::shared_ptr<Upstream> local;
  CircuitBreaker breaker;
  const int max_concurrent;
  std::atomic<std::uint64_t> attempts{0}, successes{0}, failures{0}, rejections{0}, retries{0};
  std::atomic<int> running{0};
  std::atomic<bool> open{false};
};

struct Target {
  Server* server = nullptr;
  std::string model;
  int max_model_len = 0;
};

struct Route {
  std::string model;
  std::vector<Target> targets;
};

}  // namespace

struct Router::Impl {
  std::unique_ptr<net::EventLoop> loop;
  std::unique_ptr<net::HttpClient> client;
  std::deque<Server> servers;
  std::vector<Route> routes;
  std::map<std::string, const Route*, std::less<>> by_name;
  RetryPolicy retry;
  RetryBudget budget;
  std::minstd_rand random{std::random_device{}()};
  std::int64_t created = static_cast<std::int64_t>(std::time(nullptr));
  class Job;
  std::unordered_map<std::uint64_t, std::unique_ptr<Job>> jobs;  // loop thread
  std::atomic<std::uint64_t> next_job{1};
  std::thread thread;  // last

  double Random() { return std::uniform_real_distribution<double>(0, 1)(random); }
  Status Build(RouterConfig config);
  Result<const Route*> Find(const std::string& model) const;
  ~Impl();
};

// One request on its way through its route's targets. Lives on the loop's thread, in Impl::jobs.
class Router::Impl::Job final : public AttemptSink {
 public:
  Job(Impl* impl, std::uint64_t id, const Route* route,
      std::shared_ptr<const api::ChatRequest> request, std::shared_ptr<ChatSink> sink)
      : impl_(impl), id_(id), route_(route), request_(std::move(request)), sink_(std::move(sink)) {}
  ~Job() override { Settle(); }

  void Begin() {
    impl_->budget.OnRequest();
    NextTarget(0);
  }

  void ClientLeft() {
    if (attempt_ != nullptr) Current().breaker.OnNoVerdict();
    Erase();
  }

  // The router goes away.
  void Stop() {
    Settle();
    sink_->OnError({ErrorKind::kUnavailable, "the server is shutting down", "", ""});
  }

  void OnChunk(api::ChatChunk chunk) override {
    if (!request_->stream) {
      held_.push_back(std::move(chunk));
      return;
    }
    // A role alone is no part of an answer yet: passing it on would begin the stream, with this
    // target's name, before it is known that this target answers.
    if (chunk.tokens == 0 && chunk.finish == api::FinishReason::kNone) return;
    if (!delivered_) {
      delivered_ = true;
      sink_->OnRoute(AnsweringModel());
    }
    sink_->OnChunk(std::move(chunk));
  }

  void OnComplete(const api::Usage& usage) override {
    Server& server = Current();
    server.successes.fetch_add(1);
    server.breaker.OnSuccess();
    server.open.store(false);
    if (!delivered_) sink_->OnRoute(AnsweringModel());
    for (api::ChatChunk& chunk : held_) sink_->OnChunk(std::move(chunk));
    sink_->OnDone(usage);
    Erase();
  }

  void OnFailure(Failure failure) override {
    Judge(failure);
    EndAttempt();
    held_.clear();
    if (delivered_) {
      failure.error.code = api::kStreamInterrupted;
      GiveUp(std::move(failure.error));
      return;
    }
    Decision decision = Decide(failure, attempts_, impl_->Random(), impl_->retry);
    if (decision.action == Decision::kRetrySame &&
        (Current().breaker.open() || !impl_->budget.Spend())) {
      decision.action = Decision::kNextUpstream;
    }
    const bool too_long = Classify(failure) == FailureClass::kContext;
    last_ = std::move(failure.error);
    switch (decision.action) {
      case Decision::kRetrySame:
        timer_ = impl_->loop->RunAt(net::MonotonicNow() + decision.delay, [this] {
          timer_ = {};
          Current().retries.fetch_add(1);
          StartAttempt();
        });
        return;
      case Decision::kNextUpstream:
        if (too_long) needed_len_ = route_->targets[target_].max_model_len;
        NextTarget(target_ + 1);
        return;
      case Decision::kGiveUp:
        GiveUp(std::move(*last_));
        return;
    }
  }

 private:
  Server& Current() { return *route_->targets[target_].server; }

  // The first target answers under the name the client used; another names itself.
  const std::string& AnsweringModel() const {
    return target_ == 0 ? request_->model : route_->targets[target_].model;
  }

  void NextTarget(std::size_t from) {
    const Nanos now = net::MonotonicNow();
    bool busy = false;
    for (target_ = from; target_ < route_->targets.size(); ++target_) {
      const Target& target = route_->targets[target_];
      if (needed_len_ > 0 && target.max_model_len <= needed_len_) continue;
      if (target.server->running.load() >= target.server->max_concurrent) {
        busy = true;
        continue;
      }
      if (!target.server->breaker.Allow(now)) continue;
      attempts_ = 0;
      StartAttempt();
      return;
    }
    if (last_) {
      GiveUp(std::move(*last_));
    } else {
      GiveUp({ErrorKind::kUnavailable,
              fmt::format("no upstream of '{}' takes requests now: {}", route_->model,
                          busy ? "all are at their limit"
                               : "all are failing; they are probed again "
                                 "within seconds"),
              "", ""});
    }
  }

  void StartAttempt() {
    Server& server = Current();
    ++attempts_;
    server.attempts.fetch_add(1);
    server.running.fetch_add(1);
    attempt_ = server.origin->Start(request_, route_->targets[target_].model, this);
  }

  void EndAttempt() {
    if (attempt_ == nullptr) return;
    Current().running.fetch_sub(1);
    attempt_.reset();
  }

  void Judge(const Failure& failure) {
    Server& server = Current();
    if (CountsAgainstHealth(Classify(failure))) {
      server.failures.fetch_add(1);
      server.breaker.OnFailure(net::MonotonicNow());
    } else {
      server.rejections.fetch_add(1);
      server.breaker.OnNoVerdict();
    }
    server.open.store(server.breaker.open());
  }

  void GiveUp(Error error) {
    sink_->OnError(std::move(error));
    Erase();
  }

  void Settle() {
    EndAttempt();
    if (timer_.serial != 0) impl_->loop->CancelTimer(std::exchange(timer_, {}));
  }

  // The job is over. It is destroyed by the loop's next task, as its own code may be running.
  void Erase() {
    Settle();
    auto node = impl_->jobs.extract(id_);
    if (node.empty()) return;
    impl_->loop->Post([job = std::shared_ptr<Job>(std::move(node.mapped()))] {});
  }

  Impl* const impl_;
  const std::uint64_t id_;
  const Route* const route_;
  const std::shared_ptr<const api::ChatRequest> request_;
  const std::shared_ptr<ChatSink> sink_;
  std::size_t target_ = 0;
  int attempts_ = 0;  // on this target
  std::unique_ptr<Attempt> attempt_;
  net::EventLoop::TimerId timer_;
  bool delivered_ = false;
  int needed_len_ = 0;  // only targets with more context than this
  std::vector<api::ChatChunk> held_;
  std::optional<Error> last_;
};

namespace {

class RoutedCall final : public ChatCall {
 public:
  explicit RoutedCall(std::function<void()> cancel) : cancel_(std::move(cancel)) {}
  ~RoutedCall() override { cancel_(); }
  void Cancel() override { cancel_(); }

 private:
  const std::function<void()> cancel_;
};

}  // namespace

Status Router::Impl::Build(RouterConfig config) {
  TARE_TRY(loop, net::EventLoop::Create());
  TARE_TRY(client, net::HttpClient::Create(loop.get(), {}));
  retry = config.retry;
  std::map<std::string, Server*> named;
  for (UpstreamConfig& upstream : config.upstreams) {
    const std::string name = upstream.remote.name;
    Server& server = servers.emplace_back(name, config.breaker, upstream.max_concurrent);
    server.local = upstream.local;
    if (upstream.local != nullptr) {
      server.origin = std::make_unique<LocalOrigin>(upstream.local, loop->mailbox());
    } else {
      server.origin =
          std::make_unique<RemoteOrigin>(std::move(upstream.remote), loop.get(), client.get());
    }
    if (!named.emplace(name, &server).second) {
      return FailParam("upstreams", "two upstreams are named '{}'", name);
    }
  }
  for (const RouteConfig& route : config.routes) {
    Route& built = routes.emplace_back();
    built.model = route.model;
    for (const TargetConfig& target : route.targets) {
      const auto found = named.find(target.upstream);
      if (found == named.end()) {
        return FailParam("models", "model '{}' names the upstream '{}', which is not defined",
                         route.model, target.upstream);
      }
      built.targets.push_back({found->second, target.model, target.max_model_len});
    }
    if (built.targets.empty()) {
      return FailParam("models", "model '{}' has no targets", route.model);
    }
  }
  for (std::size_t i = 0; i < routes.size(); ++i) {
    std::vector<std::string> names = config.routes[i].aliases;
    names.push_back(routes[i].model);
    for (std::string& name : names) {
      if (!by_name.emplace(name, &routes[i]).second) {
        return FailParam("models", "two models are called '{}'", name);
      }
    }
  }
  return {};
}

Router::Impl::~Impl() {
  if (!thread.joinable()) return;
  loop->Post([this] {
    while (!jobs.empty()) {
      auto node = jobs.extract(jobs.begin());
      node.mapped()->Stop();
    }
    loop->Stop();
  });
  thread.join();
}

Result<const Route*> Router::Impl::Find(const std::string& model) const {
  const auto found = by_name.find(model);
  if (found != by_name.end()) return found->second;
  std::string known;
  for (const Route& route : routes) known += (known.empty() ? "'" : ", '") + route.model + "'";
  return tl::unexpected(
      Error{ErrorKind::kNotFound,
            fmt::format("the model '{}' does not exist here; this server has {}", model, known),
            "model", api::kModelNotFound});
}

Result<std::shared_ptr<Router>> Router::Create(RouterConfig config) {
  auto impl = std::make_shared<Impl>();
  TARE_RETURN_IF_ERROR(impl->Build(std::move(config)));
  impl->thread = std::thread([loop = impl->loop.get()] { loop->Run(); });
  return std::shared_ptr<Router>(new Router(std::move(impl)));
}

Router::Router(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Router::~Router() = default;

std::vector<ModelInfo> Router::Models() const {
  std::vector<ModelInfo> models;
  for (const Route& route : impl_->routes) {
    int longest = 0;
    for (const Target& target : route.targets) longest = std::max(longest, target.max_model_len);
    models.push_back({route.model, impl_->created, longest});
  }
  return models;
}

Result<std::unique_ptr<ChatCall>> Router::Chat(api::ChatRequest request,
                                               std::shared_ptr<ChatSink> sink) {
  TARE_TRY(const Route* route, impl_->Find(request.model));
  const std::uint64_t id = impl_->next_job.fetch_add(1);
  Impl* impl = impl_.get();
  impl->loop->Post([impl, id, route, sink = std::move(sink),
                    shared = std::make_shared<const api::ChatRequest>(std::move(request))] {
    auto job = std::make_unique<Impl::Job>(impl, id, route, shared, sink);
    Impl::Job* started = job.get();
    impl->jobs.emplace(id, std::move(job));
    started->Begin();
  });
  return std::make_unique<RoutedCall>([mailbox = impl->loop->mailbox(), impl, id] {
    mailbox->Post([impl, id] {
      if (const auto found = impl->jobs.find(id); found != impl->jobs.end()) {
        found->second->ClientLeft();
      }
    });
  });
}

Result<std::vector<TokenId>> Router::Tokenize(const api::ChatRequest& request,
                                              bool add_special) const {
  TARE_TRY(const Route* route, impl_->Find(request.model));
  for (const Target& target : route->targets) {
    if (target.server->local == nullptr) continue;
    api::ChatRequest named = request;
    named.model = target.model;
    return target.server->local->Tokenize(named, add_special);
  }
  return Upstream::Tokenize(request, add_special);
}

Result<std::string> Router::Detokenize(const std::string& model,
                                       std::span<const TokenId> tokens) const {
  TARE_TRY(const Route* route, impl_->Find(model));
  for (const Target& target : route->targets) {
    if (target.server->local != nullptr) {
      return target.server->local->Detokenize(target.model, tokens);
    }
  }
  return Upstream::Detokenize(model, tokens);
}

std::vector<UpstreamStats> Router::Stats() const {
  std::vector<UpstreamStats> stats;
  for (const Server& server : impl_->servers) {
    stats.push_back({server.name, server.attempts.load(), server.successes.load(),
                     server.failures.load(), server.rejections.load(), server.retries.load(),
                     server.running.load(), server.open.load()});
  }
  return stats;
}

}  // namespace tare::gateway
