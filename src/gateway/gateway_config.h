// tare.yaml: upstream servers, the models they serve, who may ask and how much. docs/SERVING.md
// shows the whole schema. A routing plan of `tare advise` (schema tare.routing/1) loads as well.
//
// Secrets are named (an environment variable, a file) or hashed, never written in the file itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gateway/access.h"
#include "gateway/router.h"

namespace tare::gateway {

// The upstream name that stands for the model named on the command line.
inline constexpr std::string_view kLocalUpstream = "local";

// A model that runs in this process, by an upstream of `kind: local`.
struct LocalModelConfig {
  std::string upstream;
  std::string model;               // a file or folder
  std::vector<std::string> flags;  // as `tare serve` takes them, --dtype and --threads among them
  bool operator==(const LocalModelConfig&) const = default;
};

struct AdminConfig {
  bool on = false;
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free one
  KeyHash key{};
};

struct GatewayConfig {
  RouterConfig router;  // without local upstreams, which AddLocal puts in
  std::vector<LocalModelConfig> locals;
  bool uses_local = false;  // a target names the upstream "local"
  Access access;
  AdminConfig admin;
  std::string access_log;                 // a path, "-" for stderr, empty: none
  std::filesystem::path rollout_store;    // empty: in the user's data directory
  std::filesystem::path readiness_store;  // the same
  std::filesystem::path quota_store;      // empty: in the user's data directory
  std::vector<std::string> warnings;      // worth saying, not worth refusing
};

// Every mistake is named with its line; unknown keys too.
Result<GatewayConfig> LoadGatewayConfig(const std::filesystem::path& path);
Result<GatewayConfig> ParseGatewayConfig(std::string_view text, const std::string& source);

// Puts an engine in as the upstream of that name, and its model's name and length into targets that
// give none. The upstream "local" gets a route of its own when no route leads to it.
void AddLocal(GatewayConfig& config, const std::string& upstream, const std::string& model,
              int max_model_len, std::shared_ptr<Upstream> engine);

}  // namespace tare::gateway
