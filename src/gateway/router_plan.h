// What the router goes by: upstreams at work and the routes over them. Internal to the router.
//
// A Plan is immutable but for the state of its servers and waiting rooms; a new configuration is a
// new Plan that shares what did not change with the old one, which lives on while a job uses it.
//
// Thread safety: servers' origins and breakers and the rooms belong to the loop's thread; the
// atomics are read by Stats.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/attempt.h"
#include "gateway/router.h"

namespace tare::gateway {

struct Server {
  Server(std::uint32_t server_id, UpstreamConfig server_config, CircuitBreaker::Options options)
      : id(server_id),
        config(std::move(server_config)),
        breaker_options(options),
        breaker(options) {}

  const std::string& name() const { return config.remote.name; }
  // Whether a configuration asks for this very server.
  bool Is(const UpstreamConfig& other, const CircuitBreaker::Options& options) const {
    return Same(config.remote, other.remote) && config.local == other.local &&
           config.max_concurrent == other.max_concurrent &&
           config.assistant_prefix == other.assistant_prefix && config.probe == other.probe &&
           config.scrape == other.scrape && breaker_options == options;
  }
  bool Full() const { return running.load() >= config.max_concurrent; }
  // Its probes say that nothing should be sent there.
  bool Down() const { return watch != nullptr && watch->down(); }
  // What it is busy with, in tokens: what was promised to our requests, and as much for each of
  // others' that its metrics tell of.
  double Outstanding(Nanos now) const;
  // Of its speed, what its fragmented memory leaves.
  double Sound(Nanos now) const {
    return watch == nullptr ? 1.0 : std::max(0.1, 1 - watch->KvFragmentation(now));
  }

  const std::uint32_t id;  // for the prefix index; never reused
  const UpstreamConfig config;
  const CircuitBreaker::Options breaker_options;
  std::unique_ptr<Origin> origin;
  std::shared_ptr<UpstreamWatch> watch;  // null: nothing to watch
  CircuitBreaker breaker;
  std::atomic<std::uint64_t> attempts{0}, successes{0}, failures{0}, rejections{0}, retries{0},
      continued{0};
  std::atomic<int> running{0};
  std::atomic<std::int64_t> outstanding{0};  // tokens promised to what runs
  std::atomic<bool> open{false};
};

struct Target {
  std::shared_ptr<Server> server;
  std::string model;
  int max_model_len = 0;
  double weight = 1;
  bool interactive = true, batch = true;

  bool Serves(api::Tier tier) const { return tier == api::Tier::kBatch ? batch : interactive; }
  // It is an engine here, and this adapter of its model is loaded.
  bool HasAdapter(const std::string& adapter) const {
    const std::shared_ptr<Upstream>& local = server->config.local;
    return local != nullptr && !local->AdapterBase(model + ':' + adapter).empty();
  }
};

struct WaitingLine {
  explicit WaitingLine(QueueOptions options)
      : room(options), interactive(options.interactive.shed), batch(options.batch.shed) {}
  LoadShedder& Shedder(api::Tier tier) { return tier == api::Tier::kBatch ? batch : interactive; }
  WaitingRoom room;
  LoadShedder interactive, batch;
  std::atomic<std::uint64_t> refused{0}, timed_out{0}, shed{0};
};

// Where a route's copies go.
struct ShadowLane {
  ShadowPolicy policy;
  Target target;
  std::shared_ptr<ShadowStats> stats;
};

struct Route {
  std::string model;
  std::vector<Target> targets;
  Balance balance = Balance::kOrdered;
  bool sticky = false;
  bool continue_cut_streams = false;
  std::shared_ptr<WaitingLine> line;
  std::shared_ptr<Rollout> rollout;  // null: none; its target is the last of `targets`
  std::optional<ShadowLane> shadow;

  // Targets requests are balanced over; the canary is apart.
  std::size_t regular() const { return targets.size() - (rollout != nullptr ? 1 : 0); }
};

struct Plan {
  std::vector<std::shared_ptr<Server>> servers;
  std::vector<Route> routes;
  std::map<std::string, const Route*, std::less<>> by_name;
  RetryPolicy retry;

  // The route of that name or alias; the failure lists the models there are.
  Result<const Route*> Find(const std::string& model) const;
  // The same, also by "ROUTE:ADAPTER" or an adapter's own name, which `adapter` is set to.
  Result<const Route*> Find(const std::string& model, std::string& adapter) const;
};

// Makes an upstream's origin.
using OriginFactory = std::function<std::unique_ptr<Origin>(const UpstreamConfig&)>;
// Makes its watch, which has not begun yet; null when there is nothing to watch.
using WatchFactory =
    std::function<std::shared_ptr<UpstreamWatch>(const std::shared_ptr<Server>& server)>;

// Takes servers and waiting lines that did not change from `old` (may be null).
Result<std::shared_ptr<const Plan>> BuildPlan(RouterConfig config, const Plan* old,
                                              std::uint32_t& next_server_id,
                                              const OriginFactory& make_origin,
                                              const WatchFactory& make_watch);

}  // namespace tare::gateway
