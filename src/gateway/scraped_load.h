// What an upstream says of its own load, out of its Prometheus text: vLLM's, SGLang's,
// llama-server's and Tare's names, old and new ones.
//
// Thread safety: pure functions.
// Source: Prometheus text exposition format 0.0.4; the servers' own metric lists.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"

namespace tare::gateway {

struct ScrapedLoad {
  double running = 0;  // requests, over all label sets
  double waiting = 0;
  std::optional<double> kv_usage;          // 0 to 1, the fullest; absent: not told
  std::optional<double> kv_fragmentation;  // 0 to 1
};

// Fails when the text names neither running nor waiting requests under a name known here. Lines
// that are not understood, and values that are not finite or negative, are passed over.
Result<ScrapedLoad> ReadScrapedLoad(std::string_view text);

}  // namespace tare::gateway
