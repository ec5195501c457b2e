#include "gateway/router_plan.h"

#include <algorithm>
#include <utility>

#include "api/wire_error.h"

namespace tare::gateway {

namespace {

// Tokens of a request of somebody else, when there are none of ours to go by.
constexpr double kUsualRequest = 512;

using ServersByName = std::map<std::string, std::shared_ptr<Server>, std::less<>>;

std::shared_ptr<Server> Unchanged(const Plan* old, const UpstreamConfig& upstream,
                                  const CircuitBreaker::Options& breaker) {
  if (old == nullptr) return nullptr;
  for (const std::shared_ptr<Server>& server : old->servers) {
    if (server->Is(upstream, breaker)) return server;
  }
  return nullptr;
}

std::shared_ptr<WaitingLine> Unchanged(const Plan* old, const RouteConfig& route) {
  if (old == nullptr) return nullptr;
  for (const Route& known : old->routes) {
    if (known.model == route.model && known.line->room.options() == route.queue) return known.line;
  }
  return nullptr;
}

std::shared_ptr<Rollout> UnchangedRollout(const Plan* old, const RouteConfig& route) {
  if (old == nullptr) return nullptr;
  for (const Route& known : old->routes) {
    if (known.model == route.model && known.rollout != nullptr &&
        known.rollout->policy() == *route.rollout &&
        known.targets.back().server->name() == route.canary.upstream &&
        known.targets.back().model == route.canary.model) {
      return known.rollout;
    }
  }
  return nullptr;
}

std::shared_ptr<ShadowStats> UnchangedShadow(const Plan* old, const RouteConfig& route) {
  if (old == nullptr) return nullptr;
  for (const Route& known : old->routes) {
    if (known.model == route.model && known.shadow &&
        known.shadow->target.server->name() == route.shadow_target.upstream &&
        known.shadow->target.model == route.shadow_target.model) {
      return known.shadow->stats;
    }
  }
  return nullptr;
}

Result<Target> BuildTarget(const std::string& model, const TargetConfig& target,
                           const ServersByName& servers) {
  const auto found = servers.find(target.upstream);
  if (found == servers.end()) {
    return FailParam("models", "model '{}' names the upstream '{}', which is not defined", model,
                     target.upstream);
  }
  const double weight = target.weight > 0 ? target.weight : found->second->config.weight;
  return Target{found->second, target.model,       target.max_model_len,
                weight,        target.interactive, target.batch};
}

Result<Route> BuildRoute(const RouteConfig& config, const ServersByName& servers, const Plan* old) {
  Route route;
  route.model = config.model;
  route.balance = config.balance;
  route.sticky = config.sticky;
  route.continue_cut_streams = config.continue_cut_streams;
  route.line = Unchanged(old, config);
  if (route.line == nullptr) route.line = std::make_shared<WaitingLine>(config.queue);
  std::vector<TargetConfig> targets = config.targets;
  if (config.rollout) {
    route.rollout = UnchangedRollout(old, config);
    if (route.rollout == nullptr) {
      route.rollout = std::make_shared<Rollout>(config.model, *config.rollout);
    }
    targets.push_back(config.canary);
  }
  for (const TargetConfig& target : targets) {
    TARE_TRY(Target built, BuildTarget(config.model, target, servers));
    route.targets.push_back(std::move(built));
  }
  if (config.shadow) {
    ShadowLane& lane = route.shadow.emplace();
    lane.policy = *config.shadow;
    TARE_TRY(lane.target, BuildTarget(config.model, config.shadow_target, servers));
    lane.stats = UnchangedShadow(old, config);
    if (lane.stats == nullptr) lane.stats = std::make_shared<ShadowStats>();
  }
  if (config.targets.empty()) {
    return FailParam("models", "model '{}' has no targets", config.model);
  }
  return route;
}

}  // namespace

double Server::Outstanding(Nanos now) const {
  const auto own = static_cast<double>(outstanding.load());
  const double foreign = watch == nullptr ? 0 : watch->ForeignRequests(now);
  if (foreign <= 0) return own;
  const int requests = running.load();
  return own + foreign * (requests > 0 ? own / requests : kUsualRequest);
}

Result<const Route*> Plan::Find(const std::string& model) const {
  const auto found = by_name.find(model);
  if (found != by_name.end()) return found->second;
  std::string known;
  for (const Route& route : routes) known += (known.empty() ? "'" : ", '") + route.model + "'";
  return tl::unexpected(
      Error{ErrorKind::kNotFound,
            fmt::format("the model '{}' does not exist here; this server has {}", model, known),
            "model", api::kModelNotFound});
}

Result<const Route*> Plan::Find(const std::string& model, std::string& adapter) const {
  adapter.clear();
  auto found = Find(model);
  if (found) return found;
  const auto has = [](const Route& route, const std::string& name) {
    return std::any_of(route.targets.begin(), route.targets.end(),
                       [&](const Target& target) { return target.HasAdapter(name); });
  };
  for (const Route& route : routes) {
    if (!has(route, model)) continue;
    adapter = model;
    return &route;
  }
  for (std::size_t at = model.find(':'); at != std::string::npos; at = model.find(':', at + 1)) {
    const auto named = by_name.find(std::string_view(model).substr(0, at));
    std::string rest = model.substr(at + 1);
    if (named == by_name.end() || !has(*named->second, rest)) continue;
    adapter = std::move(rest);
    return named->second;
  }
  return found;
}

Result<std::shared_ptr<const Plan>> BuildPlan(RouterConfig config, const Plan* old,
                                              std::uint32_t& next_server_id,
                                              const OriginFactory& make_origin,
                                              const WatchFactory& make_watch) {
  auto plan = std::make_shared<Plan>();
  plan->retry = config.retry;
  ServersByName servers;
  for (UpstreamConfig& upstream : config.upstreams) {
    const std::string name = upstream.remote.name;
    std::shared_ptr<Server> server = Unchanged(old, upstream, config.breaker);
    if (server == nullptr) {
      server = std::make_shared<Server>(next_server_id++, std::move(upstream), config.breaker);
      server->origin = make_origin(server->config);
      server->watch = make_watch(server);
    }
    plan->servers.push_back(server);
    if (!servers.emplace(name, std::move(server)).second) {
      return FailParam("upstreams", "two upstreams are named '{}'", name);
    }
  }
  for (const RouteConfig& route : config.routes) {
    TARE_TRY(Route built, BuildRoute(route, servers, old));
    plan->routes.push_back(std::move(built));
  }
  for (std::size_t i = 0; i < plan->routes.size(); ++i) {
    std::vector<std::string> names = config.routes[i].aliases;
    names.push_back(plan->routes[i].model);
    for (std::string& name : names) {
      if (!plan->by_name.emplace(name, &plan->routes[i]).second) {
        return FailParam("models", "two models are called '{}'", name);
      }
    }
  }
  return std::shared_ptr<const Plan>(std::move(plan));
}

}  // namespace tare::gateway
