// The worlds a soak plays in: engines of random make, each drawn from a number so that one that
// failed can be played again.
//
// A world is an engine on a tiny model of some family, weight type and KV type, with little or much
// memory, a ring or an end, guesses or none; beside it adapters on disk and an embedder.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/adapter_store.h"
#include "engine/engine.h"
#include "engine/local_embedder.h"
#include "model/lora_test_folder.h"
#include "model/tiny_checkpoint.h"

namespace tare::engine::soak {

using Random = std::mt19937_64;
// In [0, n).
inline int Below(Random& random, int n) {
  return static_cast<int>(random() % static_cast<unsigned>(n));
}
inline bool OneIn(Random& random, int n) { return Below(random, n) == 0; }

// Prints and aborts, so that a sanitizer or debugger shows where.
[[noreturn]] void Fatal(const std::string& what);

struct World {
  std::string name;
  int vocab = 0;
  int window = 0;        // max_model_len
  bool ring = false;     // answers have no end of their own
  bool refuses = false;  // requests of which some must be refused
  // The same request has the same bits at any time: integer weights, or the fake model.
  bool repeats = false;
  std::shared_ptr<std::atomic<bool>> faulty;  // steps may fail while it is set
  std::vector<std::string> adapter_folders;   // empty: nothing known for this base
  std::shared_ptr<AdapterStore> adapters;
  std::unique_ptr<Embedder> embedder;
  std::unique_ptr<Engine> engine;
};

// Everything worlds are made of. Outlives them. Not thread-safe.
class Maker {
 public:
  Maker();
  ~Maker();
  World Make(std::uint64_t seed);

 private:
  std::vector<model::TinyModel> models_;
  std::vector<std::string> files_;  // of models_, as GGUF
  // Folders of adapters for models_, two versions of each.
  std::vector<std::vector<std::unique_ptr<model::AdapterFolder>>> adapters_;
  std::shared_ptr<const model::Text> text_;
  std::filesystem::path encoder_;
};

}  // namespace tare::engine::soak
