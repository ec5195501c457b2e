// Readers of the parts of tare.yaml, one a file. Internal to gateway_config.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "gateway/gateway_config.h"

namespace tare::gateway {

// The secret that `PREFIX_env` or `PREFIX_file` of `parent` names; empty when neither is given.
std::string ReadSecret(const config::Value& parent, const std::string& prefix);

// "upstreams", "models", "retry", "breaker", "queue".
void ReadRouting(const config::Value& root, GatewayConfig& out);
// "tenants", "keys", "admin", and the models' prices.
void ReadAccess(const config::Value& root, GatewayConfig& out);
// The whole of a routing plan.
void ReadRoutingPlan(const config::Value& root, GatewayConfig& out);

// An upstream of `kind: local` or `kind: remote` (also when only `url` is given).
void ReadUpstream(const std::string& name, const config::Value& value, GatewayConfig& out);

}  // namespace tare::gateway
