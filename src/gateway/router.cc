#include "gateway/router.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "gateway/local_origin.h"
#include "gateway/ready_probe.h"
#include "gateway/router_job.h"
#include "gateway/router_plan.h"

namespace tare::gateway {

namespace {

// A target being asked whether it is ready; the probe needs the server's origin.
struct ReadyServer {
  std::shared_ptr<Server> server;
  std::unique_ptr<ReadyProbe> probe;
};

}  // namespace

struct Router::Impl {
  std::unique_ptr<net::EventLoop> loop;
  std::unique_ptr<net::HttpClient> client;
  std::mutex configuring;  // one Reconfigure at a time; guards next_server_id
  std::uint32_t next_server_id = 0;
  mutable std::mutex mutex;  // guards plan
  std::shared_ptr<const Plan> plan;
  JobHome home;                                                 // loop thread
  std::unordered_map<std::uint64_t, ReadyServer> ready_probes;  // loop thread
  std::uint64_t next_probe = 1;                                 // loop thread
  std::int64_t created = static_cast<std::int64_t>(std::time(nullptr));
  std::atomic<std::uint64_t> next_job{1};
  std::thread thread;  // last; none when hosted

  std::shared_ptr<const Plan> Now() const {
    std::lock_guard lock(mutex);
    return plan;
  }
  Status Configure(RouterConfig config);
  void ProbeNewChannels(const Plan& old, const Plan& built, Nanos asked,
                        const std::shared_ptr<Readiness>& readiness);
  void ProbeChannel(Channel channel, const Route& route, const Target& target, Nanos asked,
                    const std::shared_ptr<Readiness>& readiness);
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
  const Nanos asked = config.asked != Nanos{} ? config.asked : net::MonotonicNow();
  const std::shared_ptr<Readiness> readiness = config.readiness;
  const auto make_origin = [this](const UpstreamConfig& upstream) -> std::unique_ptr<Origin> {
    if (upstream.local != nullptr) {
      return std::make_unique<LocalOrigin>(upstream.local, loop->mailbox());
    }
    return std::make_unique<RemoteOrigin>(upstream.remote, loop.get(), client.get());
  };
  const auto make_watch =
      [this](const std::shared_ptr<Server>& server) -> std::shared_ptr<UpstreamWatch> {
    const UpstreamConfig& upstream = server->config;
    if (upstream.local != nullptr || !(upstream.probe.on() || upstream.scrape.on())) return nullptr;
    UpstreamWatch::Hooks hooks;
    hooks.own_requests = [weak = std::weak_ptr<Server>(server)] {
      const auto watched = weak.lock();
      return watched != nullptr ? watched->running.load() : 0;
    };
    hooks.on_up = [this] { home.ServeLines(); };
    return std::make_shared<UpstreamWatch>(upstream.probe, upstream.scrape, upstream.remote,
                                           loop.get(), client.get(), std::move(hooks));
  };
  TARE_TRY(auto built,
           BuildPlan(std::move(config), old.get(), next_server_id, make_origin, make_watch));
  loop->Post([this, built, old, asked, readiness] {
    if (old != nullptr && readiness != nullptr) ProbeNewChannels(*old, *built, asked, readiness);
    for (const std::shared_ptr<Server>& server : built->servers) {
      const bool known = old != nullptr && std::find(old->servers.begin(), old->servers.end(),
                                                     server) != old->servers.end();
      if (!known && server->watch != nullptr) server->watch->Begin();
    }
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

// Canaries that begin, and targets new to a route whose users are split between them.
void Router::Impl::ProbeNewChannels(const Plan& old, const Plan& built, Nanos asked,
                                    const std::shared_ptr<Readiness>& readiness) {
  // Channels that are gone are not waited for.
  std::erase_if(ready_probes, [&](const auto& entry) {
    const auto& servers = built.servers;
    return std::find(servers.begin(), servers.end(), entry.second.server) == servers.end();
  });
  for (const Route& route : built.routes) {
    const auto known = std::find_if(old.routes.begin(), old.routes.end(),
                                    [&](const Route& r) { return r.model == route.model; });
    const bool is_known = known != old.routes.end();
    if (route.rollout != nullptr && (!is_known || known->rollout != route.rollout)) {
      ProbeChannel(Channel::kCanary, route, route.targets.back(), asked, readiness);
    }
    if (!route.sticky) continue;
    for (std::size_t i = 0; i < route.regular(); ++i) {
      const Target& target = route.targets[i];
      const bool had =
          is_known &&
          std::any_of(known->targets.begin(), known->targets.end(), [&](const Target& t) {
            return t.model == target.model && t.server->name() == target.server->name();
          });
      if (!had) ProbeChannel(Channel::kAb, route, target, asked, readiness);
    }
  }
}

void Router::Impl::ProbeChannel(Channel channel, const Route& route, const Target& target,
                                Nanos asked, const std::shared_ptr<Readiness>& readiness) {
  const std::uint64_t id = next_probe++;
  ReadyProbe::Question question{channel, target.server->origin.get(), target.model,
                                route.model + " at " + target.server->name(), asked};
  const auto over = [this, id] {
    auto node = ready_probes.extract(id);
    if (node.empty()) return;
    loop->Later([done = std::make_shared<ReadyServer>(std::move(node.mapped()))] {});
  };
  auto probe = std::make_unique<ReadyProbe>(std::move(question), loop.get(), readiness, over);
  ReadyServer& asking = ready_probes[id];
  asking = {target.server, std::move(probe)};
  asking.probe->Ask();
}

Router::Impl::~Impl() {
  if (loop == nullptr) return;
  const auto stop = [this] {
    while (!home.jobs.empty()) {
      auto node = home.jobs.extract(home.jobs.begin());
      node.mapped()->Stop();
    }
    home.copies.clear();
    ready_probes.clear();
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
    const bool embeds = std::ranges::any_of(route.targets, [](const Target& target) {
      const std::shared_ptr<Upstream>& local = target.server->config.local;
      return local != nullptr && std::ranges::any_of(local->Models(), &ModelInfo::embeds);
    });
    models.push_back({route.model, impl_->created, longest, "", embeds});
  }
  const std::size_t routes = models.size();
  for (const Route& route : impl_->Now()->routes) {
    for (const Target& target : route.targets) {
      if (target.server->config.local == nullptr) continue;
      for (ModelInfo& adapter : target.server->config.local->Models()) {
        const bool listed =
            std::any_of(models.begin() + static_cast<std::ptrdiff_t>(routes), models.end(),
                        [&](const ModelInfo& m) { return m.id == adapter.id; });
        if (adapter.parent.empty() || listed) continue;
        adapter.parent = route.model;
        models.push_back(std::move(adapter));
      }
    }
  }
  return models;
}

void Router::LoadAdapter(api::LoadAdapterRequest request, std::function<void(Status)> done) {
  const std::shared_ptr<const Plan> plan = impl_->Now();
  if (plan->by_name.contains(request.name)) {
    return done(FailParam("lora_name", "'{}' is a model's own name: choose another", request.name));
  }
  std::vector<Target> locals;
  for (const Route& route : plan->routes) {
    if (!request.base.empty() && plan->by_name.find(request.base) == plan->by_name.end()) break;
    if (!request.base.empty() && plan->by_name.find(request.base)->second != &route) continue;
    for (const Target& target : route.targets) {
      const bool known = std::any_of(locals.begin(), locals.end(), [&](const Target& other) {
        return other.server == target.server;
      });
      const std::shared_ptr<Upstream>& local = target.server->config.local;
      if (local != nullptr && local->TakesAdapters() && !known) locals.push_back(target);
    }
  }
  if (locals.empty()) {
    return done(FailParam("base_model_name",
                          "no model{} that takes adapters is computed in this process",
                          request.base.empty() ? "" : " '" + request.base + "'"));
  }
  if (locals.size() > 1) {
    return done(FailParam("base_model_name",
                          "{} models could be meant: name one of them as base_model_name",
                          locals.size()));
  }
  request.base = locals.front().model;
  locals.front().server->config.local->LoadAdapter(std::move(request), std::move(done));
}

Status Router::UnloadAdapter(const std::string& name) {
  const std::shared_ptr<const Plan> plan = impl_->Now();
  std::string adapter;
  const auto route = plan->Find(name, adapter);
  if (!route || adapter.empty()) return Upstream::UnloadAdapter(name);
  const std::vector<Target>& targets = (*route)->targets;
  const auto target = std::find_if(targets.begin(), targets.end(),
                                   [&](const Target& t) { return t.HasAdapter(adapter); });
  if (target == targets.end()) return Upstream::UnloadAdapter(name);
  return target->server->config.local->UnloadAdapter(target->model + ':' + adapter);
}

std::string Router::AdapterBase(const std::string& model) const {
  const std::shared_ptr<const Plan> plan = impl_->Now();
  std::string adapter;
  const auto route = plan->Find(model, adapter);
  return route && !adapter.empty() ? (*route)->model : "";
}

Result<std::unique_ptr<ChatCall>> Router::Chat(api::ChatRequest request,
                                               std::shared_ptr<ChatSink> sink) {
  std::shared_ptr<const Plan> plan = impl_->Now();
  TARE_TRY(const Route* route, plan->Find(request.model, request.adapter));
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
  std::string adapter;
  TARE_TRY(const Route* route, plan->Find(request.model, adapter));
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
  std::string adapter;
  TARE_TRY(const Route* route, plan->Find(model, adapter));
  for (const Target& target : route->targets) {
    const std::shared_ptr<Upstream>& local = target.server->config.local;
    if (local != nullptr) return local->Detokenize(target.model, tokens);
  }
  return Upstream::Detokenize(model, tokens);
}

std::vector<UpstreamStats> Router::Stats() const {
  std::vector<UpstreamStats> stats;
  const Nanos now = net::MonotonicNow();
  for (const std::shared_ptr<Server>& server : impl_->Now()->servers) {
    stats.push_back({server->name(), server->attempts.load(), server->successes.load(),
                     server->failures.load(), server->rejections.load(), server->retries.load(),
                     server->continued.load(), server->running.load(), server->open.load(),
                     server->outstanding.load(),
                     server->watch != nullptr ? server->watch->Stats(now) : WatchStats{}});
  }
  return stats;
}

bool Router::Feedback(const std::string& request_id, int label) {
  for (const std::shared_ptr<Rollout>& rollout : Rollouts()) {
    if (rollout->Feedback(request_id, label)) return true;
  }
  return false;
}

std::vector<ShadowReport> Router::Shadows() const {
  std::vector<ShadowReport> shadows;
  for (const Route& route : impl_->Now()->routes) {
    if (route.shadow) shadows.push_back(route.shadow->stats->Report(route.model));
  }
  return shadows;
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
                     route.line->timed_out.load(), route.line->shed.load(),
                     room.WantsMoreServers(now)});
  }
  return stats;
}

}  // namespace tare::gateway
