#include "model/expert_use.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tare::model {

ExpertBalance BalanceOf(std::span<const std::uint64_t> tokens) {
  const auto total =
      static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), std::uint64_t{0}));
  if (total == 0.0 || tokens.size() < 2) return {};
  double entropy = 0.0;
  for (const std::uint64_t count : tokens) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / total;
    entropy -= share * std::log(share);
  }
  const auto size = static_cast<double>(tokens.size());
  const auto most = static_cast<double>(*std::ranges::max_element(tokens));
  return {most * size / total, entropy / std::log(size)};
}

}  // namespace tare::model
