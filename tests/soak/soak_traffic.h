// What happens in a soak's world: clients that ask, go away, come back, and check what they hear.
#pragma once

#include <cstdint>

#include "soak_world.h"

namespace tare::engine::soak {

struct Tally {
  std::uint64_t answers = 0;    // requests the engine ended, in whatever way
  std::uint64_t cancelled = 0;  // of them
  std::uint64_t failed = 0;
  std::uint64_t refused = 0;   // never accepted
  std::uint64_t repeated = 0;  // answers compared with the same request's first, all equal
  std::uint64_t adapters = 0;  // loaded, replaced, unloaded
  std::uint64_t vectors = 0;   // embeddings made
  std::uint64_t preemptions = 0;
  std::uint64_t accepted_drafts = 0;
  std::uint64_t prefix_hits = 0;
  std::uint64_t pages_moved = 0;
  std::uint64_t pages_recycled = 0;
  void Add(const Tally& other);
};

// Mixed random traffic for `length`; then the engine is drained, hurried or destroyed in the midst
// of it. Aborts when a request does not end exactly once, a page or an adapter stays in use, or an
// answer that must repeat does not.
Tally Play(World world, std::uint64_t seed, Nanos length);

// `count` clients go away in mid-answer, sixteen at a time. Aborts when one leaves a page behind.
Tally KillClients(int count);

}  // namespace tare::engine::soak
