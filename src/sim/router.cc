#include "sim/router.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <unordered_set>
#include <vector>

#include "load/random.h"

namespace tare::sim {
namespace {

bool Serves(const ReplicaView& replica, engine::Tier tier) {
  return replica.accepts && (tier == engine::Tier::kBatch ? replica.batch : replica.interactive);
}

// The load a replica would have with one request more, by weight; the first of equals.
std::optional<std::size_t> LeastLoaded(const SimRequest& request,
                                       std::span<const ReplicaView> replicas, bool only_tier) {
  std::optional<std::size_t> best;
  double least = 0;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const ReplicaView& replica = replicas[i];
    if (!Serves(replica, request.tier)) continue;
    if (only_tier && replica.interactive && replica.batch) continue;
    const double load = static_cast<double>(replica.in_system + 1) / replica.weight;
    if (!best || load < least) {
      best = i;
      least = load;
    }
  }
  return best;
}

// Each replica gains its weight in credit at every pick; the richest is picked and pays the sum
// (the scheme of nginx's upstream module).
class RoundRobin final : public Router {
 public:
  std::optional<std::size_t> Pick(const SimRequest& request,
                                  std::span<const ReplicaView> replicas) override {
    credit_.resize(std::max(credit_.size(), replicas.size()));
    std::optional<std::size_t> best;
    double sum = 0;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
      if (!Serves(replicas[i], request.tier)) continue;
      credit_[i] += replicas[i].weight;
      sum += replicas[i].weight;
      if (!best || credit_[i] > credit_[*best]) best = i;
    }
    if (best) credit_[*best] -= sum;
    return best;
  }

 private:
  std::vector<double> credit_;
};

class LeastLoadedRouter final : public Router {
 public:
  std::optional<std::size_t> Pick(const SimRequest& request,
                                  std::span<const ReplicaView> replicas) override {
    return LeastLoaded(request, replicas, false);
  }
};

// A tier's own replicas first, those of both tiers when these take no more.
class Tiers final : public Router {
 public:
  std::optional<std::size_t> Pick(const SimRequest& request,
                                  std::span<const ReplicaView> replicas) override {
    const auto own = LeastLoaded(request, replicas, true);
    return own ? own : LeastLoaded(request, replicas, false);
  }
};

// Remembers which chains of blocks each replica was sent, as many tokens as its cache holds, oldest
// forgotten first: an estimate of its prefix cache without asking it.
class PrefixAffinity final : public Router {
 public:
  std::optional<std::size_t> Pick(const SimRequest& request,
                                  std::span<const ReplicaView> replicas) override {
    known_.resize(std::max(known_.size(), replicas.size()));
    const std::optional<std::size_t> least = LeastLoaded(request, replicas, false);
    if (!least || request.blocks.empty()) return least;
    std::vector<std::uint64_t> chain;
    std::uint64_t name = 0;
    for (const PromptBlock& block : request.blocks) {
      name = load::StreamSeed(name, block.name);
      chain.push_back(name);
    }
    std::size_t best = *least;
    int most = 0;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
      if (!Serves(replicas[i], request.tier)) continue;
      int found = 0;
      for (std::size_t b = 0; b < chain.size() && known_[i].chains.contains(chain[b]); ++b) {
        found += request.blocks[b].tokens;
      }
      if (found > most) {
        most = found;
        best = i;
      }
    }
    // What is saved must not cost more in the queue.
    if (!WorthIt(replicas[best], replicas[*least])) best = *least;
    Remember(known_[best], request, chain, replicas[best].cache_tokens);
    return best;
  }

  void Forget(std::size_t replica) override {
    if (replica < known_.size()) known_[replica] = {};
  }

 private:
  struct Known {
    std::unordered_set<std::uint64_t> chains;
    std::deque<std::pair<std::uint64_t, int>> order;  // and its tokens
    std::size_t tokens = 0;
  };

  static bool WorthIt(const ReplicaView& chosen, const ReplicaView& least) {
    // A queue of twice the shortest, past a handful, is where the cache's gain is lost.
    constexpr double kSlack = 4;
    return static_cast<double>(chosen.in_system) / chosen.weight <=
           2 * static_cast<double>(least.in_system) / least.weight + kSlack;
  }

  static void Remember(Known& known, const SimRequest& request,
                       const std::vector<std::uint64_t>& chain, std::size_t limit) {
    for (std::size_t b = 0; b < chain.size(); ++b) {
      if (!known.chains.insert(chain[b]).second) continue;
      known.order.emplace_back(chain[b], request.blocks[b].tokens);
      known.tokens += static_cast<std::size_t>(request.blocks[b].tokens);
    }
    while (known.tokens > limit && !known.order.empty()) {
      known.tokens -= static_cast<std::size_t>(known.order.front().second);
      known.chains.erase(known.order.front().first);
      known.order.pop_front();
    }
  }

  std::vector<Known> known_;
};

}  // namespace

const char* ToString(RouterPolicy policy) {
  switch (policy) {
    case RouterPolicy::kRoundRobin:
      return "round_robin";
    case RouterPolicy::kLeastLoaded:
      return "least_loaded";
    case RouterPolicy::kPrefixAffinity:
      return "prefix_affinity";
    case RouterPolicy::kTiers:
      return "tiers";
  }
  return "unknown";
}

std::unique_ptr<Router> MakeRouter(RouterPolicy policy) {
  switch (policy) {
    case RouterPolicy::kRoundRobin:
      return std::make_unique<RoundRobin>();
    case RouterPolicy::kLeastLoaded:
      return std::make_unique<LeastLoadedRouter>();
    case RouterPolicy::kPrefixAffinity:
      return std::make_unique<PrefixAffinity>();
    case RouterPolicy::kTiers:
      return std::make_unique<Tiers>();
  }
  return nullptr;
}

}  // namespace tare::sim
