// The half of tare.yaml that says who may ask, and how much.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "gateway/config_parts.h"

namespace tare::gateway {

namespace {

constexpr double kNanoPerUsd = 1e9;
constexpr double kTokensPerPriceUnit = 1e6;
constexpr double kMostUsd = 1e9;

std::int64_t PerToken(double usd_per_million) {
  return std::llround(usd_per_million / kTokensPerPriceUnit * kNanoPerUsd);
}

TokenPrice ReadPrice(const config::Value& value) {
  TokenPrice price;
  price.input = PerToken(value["input"].NumberOr(0, 0, kMostUsd));
  price.output = PerToken(value["output"].NumberOr(0, 0, kMostUsd));
  const config::Value cached = value["cached"];
  price.cached = cached.present() ? PerToken(cached.Number(0, kMostUsd)) : price.input;
  return price;
}

std::optional<std::int64_t> ReadCount(const config::Value& value) {
  if (!value.present()) return std::nullopt;
  return value.Int(0);
}

void ReadTenant(const std::string& name, const config::Value& value, Access& access) {
  TenantLimits limits;
  limits.requests_per_minute = ReadCount(value["requests_per_minute"]);
  limits.tokens_per_minute = ReadCount(value["tokens_per_minute"]);
  if (const config::Value usd = value["usd_per_month"]; usd.present()) {
    limits.nano_usd_per_month = std::llround(usd.Number(0, kMostUsd) * kNanoPerUsd);
  }
  access.tenants.emplace(name, limits);
}

void ReadKey(const config::Value& value, GatewayConfig& out) {
  auto key = std::make_shared<AccessKey>();
  key->name = value["name"].String();
  const config::Value tenant = value["tenant"];
  key->tenant = tenant.StringOr(kDefaultTenant);
  if (tenant.present() && out.access.tenants.count(key->tenant) == 0) {
    std::vector<std::string> names;
    for (const auto& entry : out.access.tenants) names.push_back(entry.first);
    const std::string nearest = NearestName(key->tenant, names);
    tenant.AddError(
        "there is no tenant '{}'{}", key->tenant,
        nearest.empty() ? "; add it under 'tenants'" : ", did you mean '" + nearest + "'?");
  }
  for (const config::Value& model : value["models"].ListOrEmpty()) {
    const std::string name = model.String();
    const bool known = std::any_of(
        out.router.routes.begin(), out.router.routes.end(), [&](const RouteConfig& route) {
          return route.model == name ||
                 std::find(route.aliases.begin(), route.aliases.end(), name) != route.aliases.end();
        });
    if (!known) model.AddError("no model is called '{}'", name);
    key->models.push_back(name);
  }
  key->batch = value["tier"].ChoiceOr<bool>(false, {{"interactive", false}, {"batch", true}});
  const config::Value hash = value["sha256"];
  const bool named = value["key_env"].present() || value["key_file"].present();
  const std::string secret = ReadSecret(value, "key");
  bool usable = true;
  if (hash.present() == named) {
    value.AddError("give one of sha256 (printf %s KEY | sha256sum), key_env and key_file");
    usable = false;
  } else if (named) {
    key->hash = HashKey(secret);
    usable = !secret.empty();  // else ReadSecret said why
  } else if (const auto parsed = ParseKeyHash(hash.String())) {
    key->hash = *parsed;
  } else {
    hash.AddError("it must be 64 hex digits");
    usable = false;
  }
  for (const auto& known : out.access.keys) {
    if (usable && known->hash == key->hash) {
      value.AddError("key '{}' is the same one", known->name);
    }
  }
  out.access.keys.push_back(std::move(key));
}

void ReadAdmin(const config::Value& value, AdminConfig& admin) {
  if (!value.present()) return;
  admin.on = true;
  admin.host = value["host"].StringOr(admin.host);
  admin.port = static_cast<std::uint16_t>(value["port"].Int(0, 65535));
  const std::string secret = ReadSecret(value, "key");
  if (!value["key_env"].present() && !value["key_file"].present()) {
    value.AddError("it needs a key of its own: key_env or key_file");
  }
  admin.key = HashKey(secret);
}

// A budget does not hold what costs nothing.
void WarnOfFreeModels(GatewayConfig& out) {
  const auto budget =
      std::find_if(out.access.tenants.begin(), out.access.tenants.end(),
                   [](const auto& tenant) { return tenant.second.nano_usd_per_month.has_value(); });
  if (budget == out.access.tenants.end()) return;
  std::string free;
  for (const RouteConfig& route : out.router.routes) {
    if (out.access.prices.contains(route.model)) continue;
    free += fmt::format("{}'{}'", free.empty() ? "" : ", ", route.model);
  }
  if (free.empty()) return;
  out.warnings.push_back(fmt::format(
      "tenant '{}' has usd_per_month, but these models have no price and cost nothing of it: {}",
      budget->first, free));
}

}  // namespace

void ReadAccess(const config::Value& root, GatewayConfig& out) {
  for (const auto& [name, value] : root["models"].EntriesOrEmpty()) {
    const config::Value price = value["price"];
    if (!price.present()) continue;
    const TokenPrice read = ReadPrice(price);
    out.access.prices.emplace(name, read);
    for (const config::Value& alias : value["aliases"].ListOrEmpty()) {
      out.access.prices.emplace(alias.String(), read);
    }
  }
  for (const auto& [name, value] : root["tenants"].EntriesOrEmpty()) {
    ReadTenant(name, value, out.access);
  }
  for (const config::Value& key : root["keys"].ListOrEmpty()) ReadKey(key, out);
  if (root["keys"].present() && out.access.keys.empty()) {
    root["keys"].AddError("an empty list would lock everybody out; leave 'keys' out instead");
  }
  WarnOfFreeModels(out);
  ReadAdmin(root["admin"], out.admin);
}

}  // namespace tare::gateway
