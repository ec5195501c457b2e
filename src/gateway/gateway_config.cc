#include "gateway/gateway_config.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/config.h"
#include "base/files.h"
#include "base/text.h"
#include "gateway/config_parts.h"
#include "store/quota_pool.h"

namespace tare::gateway {

namespace {

constexpr std::size_t kMaxSecretBytes = 64 * 1024;
// The engine queues by itself and refuses what its queue cannot hold.
constexpr int kEngineConcurrent = 1'000'000;

// A file, or the URL of a database that several gateways share.
void ReadQuotaStore(const config::Value& root, GatewayConfig& out) {
  const config::Value written = root["quota_store"];
  const std::string secret = ReadSecret(root, "quota_store");
  std::string store = written.StringOr("");
  const std::size_t at = store.find('@');
  const std::size_t user = store.find("://");
  const bool has_password = at != std::string::npos && user != std::string::npos &&
                            store.substr(user + 3, at - user - 3).find(':') != std::string::npos;
  if (store::IsPostgresUrl(store) &&
      (has_password || store.find("password=") != std::string::npos)) {
    written.AddError(
        "a password is never written here: put the whole URL into a variable or file "
        "and name it as quota_store_env or quota_store_file");
  }
  if (!secret.empty() && written.present()) {
    written.AddError("give quota_store, quota_store_env or quota_store_file");
  }
  if (!secret.empty()) {
    store = secret;
    if (!store::IsPostgresUrl(store)) {
      root.AddError("quota_store_env and quota_store_file give a URL: postgresql://...");
    }
  }
  out.quota_store = store;
}

Result<GatewayConfig> Read(config::Document document) {
  GatewayConfig result;
  const config::Value root = document.root();
  if (root.is_map() && root["schema"].present()) {
    ReadRoutingPlan(root, result);
  } else {
    ReadRouting(root, result);
    ReadAccess(root, result);
    result.access_log = root["access_log"].StringOr("");
    result.rollout_store = root["rollout_store"].StringOr("");
    result.readiness_store = root["readiness_store"].StringOr("");
    ReadQuotaStore(root, result);
  }
  TARE_RETURN_IF_ERROR(document.Finish());
  return result;
}

}  // namespace

std::string ReadSecret(const config::Value& parent, const std::string& prefix) {
  const config::Value variable = parent[prefix + "_env"];
  const config::Value file = parent[prefix + "_file"];
  if (variable.present() && file.present()) {
    file.AddError("give {0}_env or {0}_file, not both", prefix);
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
  if (!file.present()) return {};
  const auto text = ReadFile(file.String(), kMaxSecretBytes);
  if (!text) {
    file.AddError("{}", text.error().message);
    return {};
  }
  const std::string secret(Trim(*text));
  if (secret.empty()) file.AddError("'{}' is empty", file.String());
  return secret;
}

Result<GatewayConfig> ParseGatewayConfig(std::string_view text, const std::string& source) {
  TARE_TRY(config::Document document, config::Document::Parse(text, source));
  return Read(std::move(document));
}

Result<GatewayConfig> LoadGatewayConfig(const std::filesystem::path& path) {
  TARE_TRY(config::Document document, config::Document::Load(path));
  return Read(std::move(document));
}

void AddLocal(GatewayConfig& config, const std::string& upstream, const std::string& model,
              int max_model_len, std::shared_ptr<Upstream> engine) {
  std::vector<UpstreamConfig>& upstreams = config.router.upstreams;
  auto found = std::find_if(upstreams.begin(), upstreams.end(), [&](const UpstreamConfig& known) {
    return known.remote.name == upstream;
  });
  if (found == upstreams.end()) {
    found = upstreams.emplace(upstreams.end());
    found->remote.name = upstream;
  }
  found->local = std::move(engine);
  found->max_concurrent = kEngineConcurrent;
  found->assistant_prefix = true;
  const auto fill = [&](TargetConfig& target) {
    if (target.upstream != upstream) return;
    target.model = model;
    if (target.max_model_len == 0) target.max_model_len = max_model_len;
  };
  for (RouteConfig& route : config.router.routes) {
    for (TargetConfig& target : route.targets) fill(target);
    fill(route.canary);
    fill(route.shadow_target);
  }
  const bool named = std::any_of(config.router.routes.begin(), config.router.routes.end(),
                                 [&](const RouteConfig& route) { return route.model == model; });
  if (upstream == kLocalUpstream && !config.uses_local && !named) {
    RouteConfig& route = config.router.routes.emplace_back();
    route.model = model;
    route.targets = {{upstream, model, max_model_len}};
  }
}

}  // namespace tare::gateway
