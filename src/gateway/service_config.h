// What `tare serve` is told (flags and tare.yaml) as the parts it runs. Internal to serve.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/access_log.h"
#include "gateway/gateway_config.h"
#include "gateway/local_models.h"
#include "gateway/quota.h"
#include "gateway/serve.h"

namespace tare::gateway {

// Everything that can be read again while serving.
struct ServicePlan {
  std::optional<GatewayConfig> config;  // absent: the model of the command line alone
  std::shared_ptr<const Access> access;
  std::vector<LocalSpec> specs;
};
Result<ServicePlan> ReadPlan(const ServeOptions& options);

// What clients call the model of the command line: by default its file's name without the ending.
std::string ServedName(const ServeOptions& options);

// Where use is kept; empty: nobody has a limit or a price, so nowhere.
Result<std::filesystem::path> LedgerFile(const ServicePlan& plan);
Result<std::shared_ptr<QuotaLedger>> OpenLedger(const std::filesystem::path& file);
// Where the report of readiness is kept; empty: nowhere.
std::filesystem::path ReadinessFile(const ServicePlan& plan);
// Null without one.
Result<std::shared_ptr<AccessLog>> OpenAccessLog(const ServeOptions& options,
                                                 const ServicePlan& plan);

// "model 'chat': a, then b".
std::string Describe(const RouteConfig& route);

}  // namespace tare::gateway
