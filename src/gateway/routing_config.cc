// The routing half of tare.yaml, and routing plans.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "gateway/config_parts.h"

namespace tare::gateway {

namespace {

constexpr int kMostConcurrent = 1'000'000;
constexpr double kLargestWeight = 1e9;
constexpr std::string_view kPlanSchema = "tare.routing/1";

double ReadWeight(const config::Value& value, double fallback) {
  const config::Value weight = value["weight"];
  const double read = weight.NumberOr(fallback, 0, kLargestWeight);
  if (weight.present() && read <= 0) {
    weight.AddError("a weight is more than 0; leave the target out instead");
  }
  return read;
}

void ReadLocal(const std::string& name, const config::Value& value, GatewayConfig& out) {
  LocalModelConfig local;
  local.upstream = name;
  local.model = value["model"].String();
  if (const config::Value dtype = value["dtype"]; dtype.present()) {
    local.flags.insert(local.flags.end(), {"--dtype", dtype.String()});
  }
  if (const config::Value threads = value["threads"]; threads.present()) {
    local.flags.insert(local.flags.end(),
                       {"--threads", std::to_string(threads.Int(0, kMostConcurrent))});
  }
  for (const config::Value& flag : value["flags"].ListOrEmpty()) {
    local.flags.push_back(flag.String());
  }
  out.locals.push_back(std::move(local));
}

std::string ReadPath(const config::Value& value, std::string fallback) {
  std::string path = value.StringOr(std::move(fallback));
  const bool printable =
      std::all_of(path.begin(), path.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (value.present() && (path.empty() || path.front() != '/' || !printable)) {
    value.AddError("a path begins with '/' and holds no blanks, such as /health");
  }
  return path;
}

void ReadWatch(const config::Value& value, UpstreamConfig& upstream) {
  if (const config::Value health = value["health"]; health.present()) {
    ProbeOptions& probe = upstream.probe;
    const config::Value generate = health["generate"];
    probe.generate = generate.StringOr("");
    probe.path = ReadPath(health["path"], generate.present() ? "" : "/health");
    if (generate.present() && health["path"].present()) {
      generate.AddError("a probe asks for a path or generates; give one");
    }
    probe.interval = health["interval"].DurationOr(probe.interval);
    probe.timeout = health["timeout"].DurationOr(probe.timeout);
    probe.down_after = static_cast<int>(health["down_after"].IntOr(probe.down_after, 1, 1000));
    probe.up_after = static_cast<int>(health["up_after"].IntOr(probe.up_after, 1, 1000));
    if (probe.interval <= Nanos{} || probe.timeout <= Nanos{}) {
      health.AddError("interval and timeout are more than 0");
    }
  }
  if (const config::Value metrics = value["metrics"]; metrics.present()) {
    ScrapeOptions& scrape = upstream.scrape;
    scrape.path = ReadPath(metrics["path"], "/metrics");
    scrape.interval = metrics["interval"].DurationOr(scrape.interval);
    scrape.stale_after = metrics["stale_after"].DurationOr(3 * scrape.interval);
    if (scrape.interval <= Nanos{} || scrape.stale_after < scrape.interval) {
      metrics.AddError("interval is more than 0, and stale_after at least the interval");
    }
  }
}

void ReadRemote(const config::Value& value, UpstreamConfig& upstream) {
  RemoteOptions& remote = upstream.remote;
  const config::Value url = value["url"];
  if (const std::string text = url.String(); !text.empty()) {
    if (auto parsed = net::ParseUrl(text)) {
      remote.url = std::move(*parsed);
    } else {
      url.AddError("{}", parsed.error().message);
    }
  }
  remote.api_key = ReadSecret(value, "api_key");
  upstream.max_concurrent =
      static_cast<int>(value["max_concurrent"].IntOr(upstream.max_concurrent, 1, kMostConcurrent));
  remote.connect_timeout = value["connect_timeout"].DurationOr(remote.connect_timeout);
  remote.first_token_timeout = value["first_token_timeout"].DurationOr(remote.first_token_timeout);
  remote.gap_timeout = value["gap_timeout"].DurationOr(remote.gap_timeout);
  remote.total_timeout = value["total_timeout"].DurationOr(remote.total_timeout);
  remote.finish_timeout = value["finish_timeout"].DurationOr(remote.finish_timeout);
  upstream.assistant_prefix = value["assistant_prefix"].BoolOr(false);
  ReadWatch(value, upstream);
}

enum class Kind { kLocal, kRemote, kUnknown };

void ReadTiers(const config::Value& tiers, TargetConfig& target) {
  if (!tiers.present()) return;
  target.interactive = target.batch = false;
  for (const config::Value& tier : tiers.List()) {
    const bool batch = tier.Choice<bool>({{"interactive", false}, {"batch", true}});
    (batch ? target.batch : target.interactive) = true;
  }
}

TargetConfig ReadTarget(const config::Value& value, const RouteConfig& route,
                        const std::vector<UpstreamConfig>& upstreams) {
  TargetConfig target;
  const config::Value name = value["upstream"];
  target.upstream = name.String();
  const bool engine = target.upstream == kLocalUpstream;
  const bool known = engine || std::any_of(upstreams.begin(), upstreams.end(), [&](const auto& u) {
                       return u.remote.name == target.upstream;
                     });
  if (!known && !target.upstream.empty()) {
    std::vector<std::string> names = {std::string(kLocalUpstream)};
    for (const UpstreamConfig& upstream : upstreams) names.push_back(upstream.remote.name);
    const std::string nearest = NearestName(target.upstream, names);
    name.AddError("there is no upstream '{}'{}", target.upstream,
                  nearest.empty() ? "" : ", did you mean '" + nearest + "'?");
  }
  target.model = value["model"].StringOr(engine ? "" : route.model);
  target.max_model_len = static_cast<int>(value["max_model_len"].IntOr(0, 1, 1 << 30));
  target.weight = ReadWeight(value, 0);
  ReadTiers(value["tiers"], target);
  return target;
}

void ReadShed(const config::Value& value, ShedOptions& shed) {
  if (!value.present()) return;
  shed.requests_per_s = value["requests_per_s"].Number(1e-9, kLargestWeight);
  shed.within = value["within"].DurationOr(shed.within);
}

QueueOptions::Limits ReadLimits(const config::Value& value, QueueOptions::Limits limits) {
  if (!value.present()) return limits;
  limits.limit = static_cast<int>(value["limit"].IntOr(limits.limit, 0, kMostConcurrent));
  limits.timeout = value["timeout"].DurationOr(limits.timeout);
  ReadShed(value["shed"], limits.shed);
  return limits;
}

QueueOptions ReadQueue(const config::Value& value, QueueOptions queue) {
  if (!value.present()) return queue;
  queue.interactive = ReadLimits(value["interactive"], queue.interactive);
  queue.batch = ReadLimits(value["batch"], queue.batch);
  queue.ageing = value["ageing"].DurationOr(queue.ageing);
  if (const config::Value more = value["scale_out"]; more.present()) {
    queue.scale_out_depth =
        static_cast<int>(more["depth"].IntOr(queue.scale_out_depth, 0, kMostConcurrent));
    queue.scale_out_after = more["after"].DurationOr(queue.scale_out_after);
  }
  return queue;
}

std::optional<Nanos> OptionalDuration(const config::Value& value) {
  if (!value.present()) return std::nullopt;
  return value.Duration();
}

void ReadRollout(const config::Value& value, RouteConfig& route,
                 const std::vector<UpstreamConfig>& upstreams) {
  if (!value.present()) return;
  RolloutPolicy policy;
  route.canary = ReadTarget(value["target"], route, upstreams);
  policy.share = value["share"].FractionOr(policy.share);
  policy.alpha = value["alpha"].FractionOr(policy.alpha);
  if (policy.alpha <= 0 || policy.alpha >= 0.5) {
    value["alpha"].AddError("the chance of a false promotion lies between 0% and 50%");
  }
  policy.min_samples = static_cast<std::uint64_t>(
      value["min_samples"].IntOr(static_cast<std::int64_t>(policy.min_samples), 1));
  policy.max_duration = value["max_duration"].DurationOr(policy.max_duration);
  policy.error_margin = value["error_margin"].FractionOr(policy.error_margin);
  policy.ttft_p99 = OptionalDuration(value["ttft_p99"]);
  policy.e2e_p99 = OptionalDuration(value["e2e_p99"]);
  if (const config::Value gain = value["feedback_gain"]; gain.present()) {
    policy.feedback_gain = gain.Fraction();
  }
  route.rollout = policy;
}

void ReadShadow(const config::Value& value, RouteConfig& route,
                const std::vector<UpstreamConfig>& upstreams) {
  if (!value.present()) return;
  ShadowPolicy policy;
  route.shadow_target = ReadTarget(value["target"], route, upstreams);
  policy.share = value["share"].FractionOr(policy.share);
  policy.max_concurrent =
      static_cast<int>(value["max_concurrent"].IntOr(policy.max_concurrent, 1, kMostConcurrent));
  route.shadow = policy;
}

RouteConfig ReadRoute(const std::string& name, const config::Value& value,
                      const std::vector<UpstreamConfig>& upstreams, const QueueOptions& queue) {
  RouteConfig route;
  route.model = name;
  for (const config::Value& alias : value["aliases"].ListOrEmpty()) {
    route.aliases.push_back(alias.String());
  }
  for (const config::Value& target : value["targets"].List()) {
    route.targets.push_back(ReadTarget(target, route, upstreams));
  }
  if (route.targets.empty()) value.AddError("it needs at least one target");
  route.balance = value["balance"].ChoiceOr<Balance>(Balance::kOrdered,
                                                     {{"ordered", Balance::kOrdered},
                                                      {"weighted", Balance::kWeighted},
                                                      {"least_tokens", Balance::kLeastTokens},
                                                      {"prefix", Balance::kPrefix}});
  const config::Value sticky = value["sticky"];
  route.sticky = sticky.BoolOr(false);
  if (route.sticky && route.balance != Balance::kWeighted) {
    sticky.AddError("only 'balance: weighted' can be sticky");
  }
  route.continue_cut_streams = value["continue_cut_streams"].BoolOr(false);
  route.queue = ReadQueue(value["queue"], queue);
  ReadRollout(value["rollout"], route, upstreams);
  ReadShadow(value["shadow"], route, upstreams);
  return route;
}

// The one upstream of a plan's tier, or the several that share it.
std::vector<config::Value> TierUpstreams(const config::Value& tier) {
  const config::Value several = tier["upstreams"];
  if (!several.present()) return {tier["upstream"]};
  if (tier["upstream"].present()) several.AddError("a tier has 'upstream' or 'upstreams'");
  std::vector<config::Value> names = several.List();
  if (names.empty()) several.AddError("it names no upstream");
  return names;
}

// The targets of a plan's tiers, best first, then those that only step in. Several in one tier
// share it by their speed.
void ReadPlanTiers(const config::Value& tiers, const std::vector<UpstreamConfig>& upstreams,
                   const std::map<std::string, std::string>& served, RouteConfig& route) {
  const auto target = [&](const config::Value& name) -> TargetConfig* {
    const std::string upstream = name.String();
    if (std::none_of(upstreams.begin(), upstreams.end(),
                     [&](const auto& known) { return known.remote.name == upstream; })) {
      name.AddError("there is no upstream '{}'", upstream);
      return nullptr;
    }
    for (TargetConfig& known : route.targets) {
      if (known.upstream == upstream) return &known;
    }
    TargetConfig& added = route.targets.emplace_back(TargetConfig{upstream, served.at(upstream)});
    added.interactive = added.batch = false;
    return &added;
  };
  std::vector<config::Value> fallbacks;
  for (const auto& [tier, value] : tiers.Entries()) {
    value["because"].StringOr("");
    const bool batch = tier == "batch";
    if (!batch && tier != "interactive") value.AddError("a tier is called interactive or batch");
    ReadShed(value["shed"], batch ? route.queue.batch.shed : route.queue.interactive.shed);
    const std::vector<config::Value> names = TierUpstreams(value);
    if (names.size() > 1) route.balance = Balance::kLeastTokens;
    for (const config::Value& name : names) {
      TargetConfig* found = target(name);
      if (found != nullptr) (batch ? found->batch : found->interactive) = true;
    }
    for (const config::Value& name : value["fallbacks"].ListOrEmpty()) fallbacks.push_back(name);
  }
  for (const config::Value& name : fallbacks) target(name);
}

}  // namespace

void ReadUpstream(const std::string& name, const config::Value& value, GatewayConfig& out) {
  UpstreamConfig upstream;
  upstream.remote.name = name;
  if (name == kLocalUpstream) {
    value.AddError("'{}' is the model named on the command line; call this upstream differently",
                   kLocalUpstream);
  }
  const config::Value kind = value["kind"];
  const Kind read = kind.ChoiceOr<Kind>(
      Kind::kRemote,
      {{"local", Kind::kLocal}, {"remote", Kind::kRemote}, {"unknown", Kind::kUnknown}});
  upstream.weight = ReadWeight(
      value, value["measured_requests_per_s"].NumberOr(upstream.weight, 1e-9, kLargestWeight));
  switch (read) {
    case Kind::kLocal:
      ReadLocal(name, value, out);
      break;
    case Kind::kRemote:
      ReadRemote(value, upstream);
      break;
    case Kind::kUnknown:
      kind.AddError(
          "'{}' was not measured where it will be served: say where that is, "
          "as `kind: remote` with `url`, or `kind: local` with `model`",
          name);
      break;
  }
  out.router.upstreams.push_back(std::move(upstream));
}

void ReadRouting(const config::Value& root, GatewayConfig& out) {
  RouterConfig& router = out.router;
  for (const auto& [name, value] : root["upstreams"].EntriesOrEmpty()) {
    ReadUpstream(name, value, out);
  }
  const QueueOptions queue = ReadQueue(root["queue"], {});
  for (const auto& [name, value] : root["models"].Entries()) {
    router.routes.push_back(ReadRoute(name, value, router.upstreams, queue));
    for (const TargetConfig& target : router.routes.back().targets) {
      out.uses_local = out.uses_local || target.upstream == kLocalUpstream;
    }
    out.uses_local = out.uses_local || router.routes.back().canary.upstream == kLocalUpstream ||
                     router.routes.back().shadow_target.upstream == kLocalUpstream;
  }
  if (const config::Value retry = root["retry"]; retry.present()) {
    router.retry.attempts = static_cast<int>(retry["attempts"].IntOr(router.retry.attempts, 1, 10));
    router.retry.unit = retry["unit"].DurationOr(router.retry.unit);
    router.retry.jitter = retry["jitter"].FractionOr(router.retry.jitter);
    router.retry.max_retry_after =
        retry["max_retry_after"].DurationOr(router.retry.max_retry_after);
  }
  if (const config::Value breaker = root["breaker"]; breaker.present()) {
    router.breaker.threshold =
        static_cast<int>(breaker["threshold"].IntOr(router.breaker.threshold, 1, 1000));
    router.breaker.open_for = breaker["open_for"].DurationOr(router.breaker.open_for);
  }
}

void ReadRoutingPlan(const config::Value& root, GatewayConfig& out) {
  const config::Value schema = root["schema"];
  if (const std::string read = schema.String(); read != kPlanSchema) {
    schema.AddError("this reads '{}', not '{}'", kPlanSchema, read);
  }
  RouteConfig route;
  route.model = root["plan"].String();
  root["made_at"].StringOr("");
  if (root["answer"].StringOr("pick") == "abstain") {
    out.warnings.push_back(
        "the advice abstained: this plan routes to the first candidate by the mean, which the "
        "measurements do not tell apart from the second");
  }
  std::map<std::string, std::string> served;
  for (const auto& [name, value] : root["upstreams"].EntriesOrEmpty()) {
    // A remote candidate's `model` is the name its server knows.
    served[name] = value["model"].StringOr(name);
    ReadUpstream(name, value, out);
  }
  const config::Value tiers = root["tiers"];
  if (out.router.upstreams.empty()) {
    tiers.AddError("the plan routes nothing: no candidate kept the service levels");
    return;
  }
  ReadPlanTiers(tiers, out.router.upstreams, served, route);
  if (route.targets.empty()) tiers.AddError("it names no tier");
  if (route.model != "auto") route.aliases.push_back("auto");
  const std::string plan = route.model;
  out.router.routes.push_back(std::move(route));
  // Every candidate can be asked for by its own name as well.
  for (const UpstreamConfig& upstream : out.router.upstreams) {
    const std::string& name = upstream.remote.name;
    if (name == plan || name == "auto") continue;
    RouteConfig& own = out.router.routes.emplace_back();
    own.model = name;
    own.targets = {{name, served.at(name), 0}};
  }
}

}  // namespace tare::gateway
