#include "gateway/router.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>

#include "gateway/local_origin.h"
#include "gateway/router_job.h"
#include "gateway/router_plan.h"

namespace tare::gateway {

struct Router::Impl {
  std::unique_ptr<net::EventLoop> loop;
  std::unique_ptr<net::HttpClient> client;
  std::mutex configuring;  // one Reconfigure at a time; guards next_server_id
  std::uint32_t next_server_id = 0;
  mutable std::mutex mutex;  // guards plan
  std::shared_ptr<const Plan> plan;
  JobHome home;  // loop thread
  std::int64_t created = static_cast<std::int64_t>(std::time(nullptr));
  std::atomic<std::uint64_t> next_job{1};
  std::thread thread;  // last; none when hosted

  std::shared_ptr<const Plan> Now() const {
    std::lock_guard lock(mutex);
    return plan;
  }
  Status Configure(RouterConfig config);
  ~Impl();
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

Status Router::Impl::Configure(RouterConfig config) {
  std::lock_guard one(configuring);
  const std::shared_ptr<const Plan> old = Now();
  const auto make_origin = [this](const UpstreamConfig& upstream) -> std::unique_ptr<Origin> {
    if (upstream.local != nullptr) {
      return std::make_unique<LocalOrigin>(upstream.local, loop->mailbox());
    }
    return std::make_unique<RemoteOrigin>(upstream.remote, loop.get(), client.get());
  };
  TARE_TRY(auto built, BuildPlan(std::move(config), old.get(), next_server_id, make_origin));
  loop->Post([this, built] {
    for (const Route& route : built->routes) {
      const bool known = std::any_of(home.lines.begin(), home.lines.end(),
                                     [&](const auto& line) { return line.lock() == route.line; });
      if (!known) home.lines.push_back(route.line);
    }
    home.ServeLines();  // limits may have grown
  });
  std::lock_guard lock(mutex);
  plan.swap(built);
  return {};
}

Router::Impl::~Impl() {
  if (loop == nullptr) return;
  const auto stop = [this] {
    while (!home.jobs.empty()) {
      auto node = home.jobs.extract(home.jobs.begin());
      node.mapped()->Stop();
    }
    loop->Stop();
  };
  if (thread.joinable()) {
    loop->Post(stop);
    thread.join();
  } else {
    loop->Do(stop);
  }
}

Result<std::shared_ptr<Router>> Router::Create(RouterConfig config, bool hosted) {
  auto impl = std::make_shared<Impl>();
  TARE_TRY(impl->loop, net::EventLoop::Create());
  net::HttpClientOptions client;
  client.kernel_receipts = false;
  TARE_TRY(impl->client, net::HttpClient::Create(impl->loop.get(), client));
  impl->home.loop = impl->loop.get();
  TARE_RETURN_IF_ERROR(impl->Configure(std::move(config)));
  if (!hosted) impl->thread = std::thread([loop = impl->loop.get()] { loop->Run(); });
  return std::shared_ptr<Router>(new Router(std::move(impl)));
}

Router::Router(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Router::~Router() = default;

net::EventLoop* Router::loop() { return impl_->loop.get(); }

Status Router::Reconfigure(RouterConfig config) { return impl_->Configure(std::move(config)); }

std::vector<ModelInfo> Router::Models() const {
  std::vector<ModelInfo> models;
  for (const Route& route : impl_->Now()->routes) {
    int longest = 0;
    for (const Target& target : route.targets) longest = std::max(longest, target.max_model_len);
    models.push_back({route.model, impl_->created, longest});
  }
  return models;
}

Result<std::unique_ptr<ChatCall>> Router::Chat(api::ChatRequest request,
                                               std::shared_ptr<ChatSink> sink) {
  std::shared_ptr<const Plan> plan = impl_->Now();
  TARE_TRY(const Route* route, plan->Find(request.model));
  const std::uint64_t id = impl_->next_job.fetch_add(1);
  Impl* impl = impl_.get();
  impl->loop->mailbox()->Do(
      [impl, id, plan = std::move(plan), route, sink = std::move(sink),
       shared = std::make_shared<const api::ChatRequest>(std::move(request))] {
        auto job = std::make_unique<Job>(&impl->home, id, plan, route, shared, sink);
        Job* started = job.get();
        impl->home.jobs.emplace(id, std::move(job));
        started->Begin();
      });
  return std::make_unique<RoutedCall>([mailbox = impl->loop->mailbox(), impl, id] {
    // When the router is gone its mailbox is closed, and this does nothing.
    mailbox->Do([impl, id] {
      const auto found = impl->home.jobs.find(id);
      if (found != impl->home.jobs.end()) found->second->ClientLeft();
    });
  });
}

Result<std::vector<TokenId>> Router::Tokenize(const api::ChatRequest& request,
                                              bool add_special) const {
  const std::shared_ptr<const Plan> plan = impl_->Now();
  TARE_TRY(const Route* route, plan->Find(request.model));
  for (const Target& target : route->targets) {
    const std::shared_ptr<Upstream>& local = target.server->config.local;
    if (local == nullptr) continue;
    api::ChatRequest named = request;
    named.model = target.model;
    return local->Tokenize(named, add_special);
  }
  return Upstream::Tokenize(request, add_special);
}

Result<std::string> Router::Detokenize(const std::string& model,
                                       std::span<const TokenId> tokens) const {
  const std::shared_ptr<const Plan> plan = impl_->Now();
  TARE_TRY(const Route* route, plan->Find(model));
  for (const Target& target : route->targets) {
    const std::shared_ptr<Upstream>& local = target.server->config.local;
    if (local != nullptr) return local->Detokenize(target.model, tokens);
  }
  return Upstream::Detokenize(model, tokens);
}

std::vector<UpstreamStats> Router::Stats() const {
  std::vector<UpstreamStats> stats;
  for (const std::shared_ptr<Server>& server : impl_->Now()->servers) {
    stats.push_back({server->name(), server->attempts.load(), server->successes.load(),
                     server->failures.load(), server->rejections.load(), server->retries.load(),
                     server->running.load(), server->open.load(), server->outstanding.load()});
  }
  return stats;
}

bool Router::Feedback(const std::string& request_id, int label) {
  for (const std::shared_ptr<Rollout>& rollout : Rollouts()) {
    if (rollout->Feedback(request_id, label)) return true;
  }
  return false;
}

std::vector<std::shared_ptr<Rollout>> Router::Rollouts() const {
  std::vector<std::shared_ptr<Rollout>> rollouts;
  for (const Route& route : impl_->Now()->routes) {
    if (route.rollout != nullptr) rollouts.push_back(route.rollout);
  }
  return rollouts;
}

std::vector<RouteStats> Router::Routes() const {
  std::vector<RouteStats> stats;
  const Nanos now = net::MonotonicNow();
  for (const Route& route : impl_->Now()->routes) {
    const WaitingRoom& room = route.line->room;
    stats.push_back({route.model, room.depth(api::Tier::kInteractive),
                     room.depth(api::Tier::kBatch), route.line->refused.load(),
                     route.line->timed_out.load(), room.WantsMoreServers(now)});
  }
  return stats;
}

}  // namespace tare::gateway
