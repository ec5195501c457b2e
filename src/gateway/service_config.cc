#include "gateway/service_config.h"

#include <utility>

#include "base/files.h"
#include "base/log.h"
#include "gateway/api_keys.h"

namespace tare::gateway {

namespace {

Result<std::optional<GatewayConfig>> ReadConfig(const ServeOptions& options) {
  if (options.config.empty()) {
    return std::optional<GatewayConfig>();
  }
  TARE_TRY(GatewayConfig config, LoadGatewayConfig(options.config));
  if (config.router.routes.empty() && !options.model) {
    return FailParam("models", "'{}' names no model: give it one under 'models'",
                     options.config.string());
  }
  if (config.uses_local && !options.model) {
    return FailParam("model",
                     "'{}' routes to the upstream 'local', but no model is named: add MODEL.gguf",
                     options.config.string());
  }
  return std::optional<GatewayConfig>(std::move(config));
}

// Keys of --api-key-file and of the configuration together.
Result<std::shared_ptr<const Access>> ReadAccess(const ServeOptions& options,
                                                 const std::optional<GatewayConfig>& config) {
  auto access = std::make_shared<Access>();
  if (config) *access = config->access;
  if (!options.api_key_file.empty()) {
    TARE_TRY(const std::vector<KeyHash> hashes, LoadApiKeys(options.api_key_file));
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      auto key = std::make_shared<AccessKey>();
      key->name = fmt::format("api-key-file:{}", i + 1);
      key->hash = hashes[i];
      access->keys.push_back(std::move(key));
    }
  }
  return std::shared_ptr<const Access>(std::move(access));
}

Result<std::vector<LocalSpec>> LocalSpecs(const ServeOptions& options,
                                          const std::optional<GatewayConfig>& config) {
  std::vector<LocalSpec> specs;
  if (options.model) {
    specs.push_back(
        {std::string(kLocalUpstream), ServedName(options), *options.model, "command line"});
  }
  if (!config) return specs;
  for (const LocalModelConfig& local : config->locals) {
    auto read = options.local_options(local);
    if (!read) return Context(std::move(read).error(), "upstream '{}'", local.upstream);
    const auto found = engine::ResolveModel(read->model);
    if (!found) return Context(found.error(), "upstream '{}'", local.upstream);
    std::string identity = local.model;
    for (const std::string& flag : local.flags) identity += '\n' + flag;
    specs.push_back({local.upstream, local.upstream, std::move(*read), std::move(identity)});
  }
  return specs;
}

}  // namespace

Result<ServicePlan> ReadPlan(const ServeOptions& options) {
  ServicePlan plan;
  TARE_TRY(plan.config, ReadConfig(options));
  TARE_TRY(plan.access, ReadAccess(options, plan.config));
  TARE_TRY(plan.specs, LocalSpecs(options, plan.config));
  return plan;
}

std::string ServedName(const ServeOptions& options) {
  if (!options.name.empty() || !options.model) return options.name;
  const auto resolved = engine::ResolveModel(options.model->model);
  if (!resolved) return options.model->model;
  const std::filesystem::path path =
      resolved->has_filename() ? *resolved : resolved->parent_path();  // "folder/"
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

Result<std::filesystem::path> LedgerFile(const ServicePlan& plan) {
  if (plan.access->tenants.empty() && plan.access->prices.empty()) return std::filesystem::path();
  if (plan.config && !plan.config->quota_store.empty()) return plan.config->quota_store;
  TARE_TRY(const std::filesystem::path dir, UserDataDir());
  return dir / "quotas.db";
}

std::filesystem::path ReadinessFile(const ServicePlan& plan) {
  if (!plan.config) return {};
  if (!plan.config->readiness_store.empty()) return plan.config->readiness_store;
  // A report is no reason not to serve.
  const auto dir = UserDataDir();
  return dir ? *dir / "readiness.json" : std::filesystem::path();
}

Result<std::shared_ptr<QuotaLedger>> OpenLedger(const std::filesystem::path& file) {
  if (file.empty()) return QuotaLedger::Create(nullptr);
  if (store::IsPostgresUrl(file.string())) {
    TARE_TRY(auto pool, store::PostgresQuotaPool::Open(file.string()));
    return QuotaLedger::CreateShared(std::move(pool), {});
  }
  TARE_TRY(store::QuotaStore store, store::QuotaStore::Open(file));
  return QuotaLedger::Create(std::make_unique<store::QuotaStore>(std::move(store)));
}

Result<std::shared_ptr<AccessLog>> OpenAccessLog(const ServeOptions& options,
                                                 const ServicePlan& plan) {
  const std::string path =
      !options.access_log.empty() || !plan.config ? options.access_log : plan.config->access_log;
  if (path.empty()) return std::shared_ptr<AccessLog>();
  return AccessLog::Open(path);
}

std::string Describe(const RouteConfig& route) {
  static constexpr const char* kNames[] = {"", " (weighted)", " (least tokens)", " (prefix)"};
  const char* separator = route.balance == Balance::kOrdered ? ", then " : " | ";
  std::string targets;
  for (const TargetConfig& target : route.targets) {
    if (!targets.empty()) targets += separator;
    targets += target.upstream;
    if (!target.batch) targets += " [interactive]";
    if (!target.interactive) targets += " [batch]";
  }
  std::string text =
      fmt::format("model '{}': {}{}{}", route.model, targets,
                  kNames[static_cast<std::size_t>(route.balance)], route.sticky ? " sticky" : "");
  if (route.rollout) {
    text += fmt::format("; rolls out {}, to {:g} % at first", route.canary.upstream,
                        100 * route.rollout->share);
  }
  if (route.shadow) {
    text += fmt::format("; copies {:g} % to {}", 100 * route.shadow->share,
                        route.shadow_target.upstream);
  }
  return text;
}

}  // namespace tare::gateway
