#include "engine/stats.h"

namespace tare::engine {

ExpertStats Summarize(const model::ExpertUse& use) {
  ExpertStats stats;
  stats.tokens.assign(static_cast<std::size_t>(use.experts), 0);
  stats.weight_bytes = use.weight_bytes;
  stats.first_layer = use.first_layer;
  stats.touched = use.touched;
  stats.present = use.present;
  if (use.step_present > 0) {
    stats.touched_share =
        static_cast<double>(use.step_touched) / static_cast<double>(use.step_present);
  }
  for (int layer = 0; layer < use.layers; ++layer) {
    const std::span<const std::uint64_t> tokens = use.layer(layer);
    for (std::size_t i = 0; i < tokens.size(); ++i) stats.tokens[i] += tokens[i];
    stats.layers.push_back(model::BalanceOf(tokens));
  }
  return stats;
}

}  // namespace tare::engine
