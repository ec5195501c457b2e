#include "gateway/gateway_config.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/config.h"
#include "base/files.h"
#include "base/text.h"

namespace tare::gateway {

namespace {

constexpr std::size_t kMaxSecretBytes = 64 * 1024;
constexpr int kMostConcurrent = 1'000'000;

std::string ReadSecret(const config::Value& upstream) {
  const config::Value variable = upstream["api_key_env"];
  const config::Value file = upstream["api_key_file"];
  if (variable.present() && file.present()) {
    file.AddError("give api_key_env or api_key_file, not both");
    return {};
  }
  if (variable.present()) {
    const std::string name = variable.String();
    const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') {
      variable.AddError("the environment variable '{}' is not set", name);
      return {};
    }
    return value;
  }
  if (file.present()) {
    const auto text = ReadFile(file.String(), kMaxSecretBytes);
    if (!text) {
      file.AddError("{}", text.error().message);
      return {};
    }
    return std::string(Trim(*text));
  }
  return {};
}

UpstreamConfig ReadUpstream(const std::string& name, const config::Value& value) {
  UpstreamConfig upstream;
  RemoteOptions& remote = upstream.remote;
  remote.name = name;
  if (name == kLocalUpstream) {
    value.AddError("'{}' is the model named on the command line; call this upstream differently",
                   kLocalUpstream);
  }
  const config::Value url = value["url"];
  if (const std::string text = url.String(); !text.empty()) {
    if (auto parsed = net::ParseUrl(text)) {
      remote.url = std::move(*parsed);
    } else {
      url.AddError("{}", parsed.error().message);
    }
  }
  remote.api_key = ReadSecret(value);
  upstream.max_concurrent =
      static_cast<int>(value["max_concurrent"].IntOr(upstream.max_concurrent, 1, kMostConcurrent));
  remote.connect_timeout = value["connect_timeout"].DurationOr(remote.connect_timeout);
  remote.first_token_timeout = value["first_token_timeout"].DurationOr(remote.first_token_timeout);
  remote.gap_timeout = value["gap_timeout"].DurationOr(remote.gap_timeout);
  remote.total_timeout = value["total_timeout"].DurationOr(remote.total_timeout);
  remote.finish_timeout = value["finish_timeout"].DurationOr(remote.finish_timeout);
  return upstream;
}

TargetConfig ReadTarget(const config::Value& value, const RouteConfig& route,
                        const std::vector<UpstreamConfig>& upstreams) {
  TargetConfig target;
  const config::Value name = value["upstream"];
  target.upstream = name.String();
  const bool local = target.upstream == kLocalUpstream;
  const bool known = local || std::any_of(upstreams.begin(), upstreams.end(), [&](const auto& u) {
                       return u.remote.name == target.upstream;
                     });
  if (!known && !target.upstream.empty()) {
    std::vector<std::string> names = {std::string(kLocalUpstream)};
    for (const UpstreamConfig& upstream : upstreams) names.push_back(upstream.remote.name);
    const std::string nearest = NearestName(target.upstream, names);
    name.AddError("there is no upstream '{}'{}", target.upstream,
                  nearest.empty() ? "" : ", did you mean '" + nearest + "'?");
  }
  target.model = value["model"].StringOr(local ? "" : route.model);
  target.max_model_len = static_cast<int>(value["max_model_len"].IntOr(0, 1, 1 << 30));
  return target;
}

RouteConfig ReadRoute(const std::string& name, const config::Value& value,
                      const std::vector<UpstreamConfig>& upstreams) {
  RouteConfig route;
  route.model = name;
  for (const config::Value& alias : value["aliases"].ListOrEmpty()) {
    route.aliases.push_back(alias.String());
  }
  for (const config::Value& target : value["targets"].List()) {
    route.targets.push_back(ReadTarget(target, route, upstreams));
  }
  if (route.targets.empty()) value.AddError("it needs at least one target");
  return route;
}

Result<GatewayConfig> Read(config::Document document) {
  GatewayConfig result;
  RouterConfig& router = result.router;
  const config::Value root = document.root();
  for (const auto& [name, value] : root["upstreams"].EntriesOrEmpty()) {
    router.upstreams.push_back(ReadUpstream(name, value));
  }
  for (const auto& [name, value] : root["models"].Entries()) {
    router.routes.push_back(ReadRoute(name, value, router.upstreams));
    for (const TargetConfig& target : router.routes.back().targets) {
      result.uses_local = result.uses_local || target.upstream == kLocalUpstream;
    }
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
  TARE_RETURN_IF_ERROR(document.Finish());
  return result;
}

}  // namespace

Result<GatewayConfig> ParseGatewayConfig(std::string_view text, const std::string& source) {
  TARE_TRY(config::Document document, config::Document::Parse(text, source));
  return Read(std::move(document));
}

Result<GatewayConfig> LoadGatewayConfig(const std::filesystem::path& path) {
  TARE_TRY(config::Document document, config::Document::Load(path));
  return Read(std::move(document));
}

void AddLocal(GatewayConfig& config, const std::string& name, int max_model_len,
              std::shared_ptr<Upstream> upstream) {
  UpstreamConfig local;
  local.remote.name = std::string(kLocalUpstream);
  local.local = std::move(upstream);
  // The engine queues by itself and refuses what its queue cannot hold.
  local.max_concurrent = kMostConcurrent;
  config.router.upstreams.push_back(std::move(local));
  for (RouteConfig& route : config.router.routes) {
    for (TargetConfig& target : route.targets) {
      if (target.upstream != kLocalUpstream) continue;
      if (target.model.empty()) target.model = name;
      if (target.max_model_len == 0) target.max_model_len = max_model_len;
    }
  }
  const bool named = std::any_of(config.router.routes.begin(), config.router.routes.end(),
                                 [&](const RouteConfig& route) { return route.model == name; });
  if (!config.uses_local && !named) {
    config.router.routes.push_back(
        {name, {}, {{std::string(kLocalUpstream), name, max_model_len}}});
  }
}

}  // namespace tare::gateway
