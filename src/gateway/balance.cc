#include "gateway/balance.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tare::gateway {

namespace {

// A target with a known prefix may be this much busier than the idlest one. Computing a prompt
// costs more per token than waiting behind short answers, but not without bound.
constexpr double kBusierFactor = 2;
constexpr double kBusierTokens = 8192;

double Load(const BalanceTarget& target) { return target.outstanding / target.weight; }

// Smaller goes first.
double DrawKey(const BalanceTarget& target) { return -std::log(target.draw) / target.weight; }

// The target worth going to for its cache, or the count of targets.
std::size_t Affine(std::span<const BalanceTarget> targets) {
  double idlest = std::numeric_limits<double>::infinity();
  for (const BalanceTarget& target : targets) {
    if (!target.other_tier) idlest = std::min(idlest, Load(target));
  }
  std::size_t best = targets.size();
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const BalanceTarget& target = targets[i];
    if (target.other_tier || target.prefix_bytes == 0) continue;
    if (Load(target) > idlest * kBusierFactor + kBusierTokens) continue;
    if (best == targets.size() || target.prefix_bytes > targets[best].prefix_bytes ||
        (target.prefix_bytes == targets[best].prefix_bytes && Load(target) < Load(targets[best]))) {
      best = i;
    }
  }
  return best;
}

}  // namespace

std::vector<std::size_t> OrderTargets(Balance balance, std::span<const BalanceTarget> targets) {
  std::vector<std::size_t> order(targets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t affine = balance == Balance::kPrefix ? Affine(targets) : targets.size();
  std::stable_sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    const BalanceTarget& a = targets[left];
    const BalanceTarget& b = targets[right];
    if (a.other_tier != b.other_tier) return b.other_tier;
    if ((left == affine) != (right == affine)) return left == affine;
    switch (balance) {
      case Balance::kOrdered:
        return false;
      case Balance::kWeighted:
        return DrawKey(a) < DrawKey(b);
      case Balance::kLeastTokens:
      case Balance::kPrefix:
        // Equally idle ones share by weight.
        return Load(a) != Load(b) ? Load(a) < Load(b) : DrawKey(a) < DrawKey(b);
    }
    return false;
  });
  return order;
}

double StickyDraw(std::string_view user, std::string_view target) {
  const XXH64_hash_t seed = XXH3_64bits(target.data(), target.size());
  const XXH64_hash_t hash = XXH3_64bits_withSeed(user.data(), user.size(), seed);
  // 53 bits, and never 0 or 1.
  return (static_cast<double>(hash >> 11) + 0.5) / 9007199254740992.0;
}

}  // namespace tare::gateway
