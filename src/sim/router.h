// Which replica a request goes to. Pure but for what a policy remembers of its own picks.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "sim/request.h"

namespace tare::sim {

enum class RouterPolicy {
  kRoundRobin,      // in turn, as often as weights say (smooth weighted round robin)
  kLeastLoaded,     // fewest requests in the system by weight
  kPrefixAffinity,  // where most of the prompt was seen before, unless that one is overloaded
  kTiers,           // least loaded of those that serve the tier alone, else of those that also do
};
const char* ToString(RouterPolicy policy);

struct ReplicaView {
  bool accepts = true;        // up, not draining, below its limit
  std::size_t in_system = 0;  // waiting and running
  double weight = 1;          // relative speed
  bool interactive = true, batch = true;
  std::size_t cache_tokens = 0;  // its KV memory
};

class Router {
 public:
  virtual ~Router() = default;
  // The index of the replica; nothing when none takes the request.
  virtual std::optional<std::size_t> Pick(const SimRequest& request,
                                          std::span<const ReplicaView> replicas) = 0;
  // The replica has lost its memory.
  virtual void Forget(std::size_t) {}
};

std::unique_ptr<Router> MakeRouter(RouterPolicy policy);

}  // namespace tare::sim
