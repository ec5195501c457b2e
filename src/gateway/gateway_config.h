// tare.yaml: upstream servers and the models they serve. docs/SERVING.md shows the whole schema.
//
// Secrets are named (an environment variable, a file), never written in the file itself.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gateway/router.h"

namespace tare::gateway {

// The upstream name that stands for the engine of this process.
inline constexpr std::string_view kLocalUpstream = "local";

struct GatewayConfig {
  RouterConfig router;      // without the local upstream, which AddLocal puts in
  bool uses_local = false;  // a target names it
};

// Every mistake is named with its line; unknown keys too.
Result<GatewayConfig> LoadGatewayConfig(const std::filesystem::path& path);
Result<GatewayConfig> ParseGatewayConfig(std::string_view text, const std::string& source);

// Puts the engine in: as the upstream "local", its name into targets that name no model, and a
// route of its own when no route leads to it.
void AddLocal(GatewayConfig& config, const std::string& name, int max_model_len,
              std::shared_ptr<Upstream> upstream);

}  // namespace tare::gateway
