// From what a user names on the command line to a running engine: the one way serve, generate,
// bench and advise load a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/adapter_store.h"
#include "engine/engine.h"
#include "kernels/matmul.h"
#include "model/text.h"

namespace tare::engine {

// The file or folder a user means. An empty name or "smollm2" is the default model: TARE_MODEL if
// set, else the copy `./run setup` leaves in the cache directory; anything else is a path.
Result<std::filesystem::path> ResolveModel(std::string_view name);

struct LocalModelOptions {
  std::string model;                   // as ResolveModel takes it
  std::string dtype = "auto";          // auto, f32, bf16, int8, int4
  int threads = 0;                     // 0: one per usable core
  std::string isa;                     // kernels' instruction set; empty: TARE_ISA, else the best
  std::filesystem::path packed_cache;  // folder of packed weights; empty: pack at every start
  EngineOptions engine;  // kv_memory_bytes 0: what is left beside the weights, see below
  std::vector<std::pair<std::string, std::filesystem::path>> adapters;  // name and folder of each
  std::function<void(double fraction, std::string_view what)> progress;
};

struct LocalModel {
  std::shared_ptr<const model::Text> text;
  std::string name;  // as the checkpoint calls itself, or the file's
  std::filesystem::path path;
  kernels::WeightType dtype = kernels::WeightType::kF32;
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_memory_bytes = 0;
  std::uint64_t kv_bytes_per_token = 0;
  int threads = 0;
  bool weights_from_cache = false;         // mapped as an earlier start had packed them
  std::shared_ptr<AdapterStore> adapters;  // those for this model; never null once loaded
  std::unique_ptr<Engine> engine;
  std::future<void> keeping;  // the packed weights on their way to the disk; destruction waits
};

// Loads and starts. Before any weight is read it is checked that weights, KV memory, working memory
// and the adapters fit what the machine has left (kResourceExhausted with the sum if not). Adapters
// loaded later get what that leaves.
//
// Without kv_memory_bytes, KV memory is what max_num_seqs sequences of full length would take, but
// at most 80 % of what the machine has left beside weights and adapters; address space is only
// reserved, so memory is taken as sequences grow.
Result<LocalModel> LoadLocalModel(LocalModelOptions options);

}  // namespace tare::engine
