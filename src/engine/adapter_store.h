// The LoRA adapters one model serves with, by name: loaded, replaced and dropped while it computes.
//
// A request takes its adapter when it is submitted and keeps it to its end. So a name that is
// dropped or replaced is gone for new requests at once, running answers are not disturbed, and the
// memory is freed when the last of them ends.
//
// Ownership: shares adapters with the requests that use them. Thread safety: all methods may be
// called from any thread; Load blocks on reading files and on nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "kernels/matmul.h"
#include "model/lora_adapter.h"
#include "model/memory_need.h"
#include "model/model_config.h"

namespace tare::engine {

struct AdapterInfo {
  std::string name;
  std::filesystem::path folder;
  std::size_t bytes = 0;
  int modules = 0;  // linear layers it adds to
  int max_rank = 0;
  std::int64_t loaded_at = 0;  // Unix seconds
  Nanos loading{};             // how long it took
};

struct AdapterStats {
  std::size_t loaded = 0;  // by name
  std::size_t loaded_bytes = 0;
  std::size_t retiring = 0;  // without a name, kept by answers that still run
  std::size_t retiring_bytes = 0;
  std::uint64_t loads = 0;
  std::uint64_t refused_loads = 0;
  std::uint64_t unloads = 0;
  double load_seconds = 0.0;  // of `loads`, together
};

// What adapters have to fit beside: the model's need, of the memory there was before it was loaded.
// KV memory counts whole: it is promised to sequences, though it is taken only as they grow.
struct AdapterRoom {
  model::MemoryNeed model;
  std::uint64_t available = 0;
};

// The most memory the adapter in `folder` may take; 0 when its weights cannot be found.
std::uint64_t MostAdapterBytes(const std::filesystem::path& folder, const model::ModelConfig& base,
                               kernels::WeightType base_type);

class AdapterStore {
 public:
  // For a base of these facts whose linear layers compute in `base_type`. Without `room`, adapters
  // may take what the machine has left.
  AdapterStore(model::ModelConfig base, kernels::WeightType base_type,
               std::optional<AdapterRoom> room = {});

  // Reads the adapter in `folder`. A name that is taken is refused unless `replace`; then the new
  // one takes over when it is ready.
  Status Load(const std::string& name, const std::filesystem::path& folder, bool replace);
  Status Unload(const std::string& name);
  // Null when there is none of that name.
  std::shared_ptr<const model::LoraAdapter> Find(const std::string& name) const;

  std::vector<AdapterInfo> List() const;  // by name
  AdapterStats Stats() const;

 private:
  struct Entry {
    AdapterInfo info;
    std::shared_ptr<const model::LoraAdapter> adapter;
  };
  struct Alive;  // what all adapters that still exist take

  Result<Entry> Read(const std::string& name, const std::filesystem::path& folder);
  // Counts `most` as being loaded, or refuses.
  Status MakeRoom(const std::string& name, std::uint64_t most);

  const model::ModelConfig base_;
  const kernels::WeightType base_type_;
  const std::optional<AdapterRoom> room_;
  const std::shared_ptr<Alive> alive_;
  mutable std::mutex mutex_;  // guards the rest
  std::map<std::string, Entry> entries_;
  AdapterStats counts_;
  std::uint64_t loading_bytes_ = 0;  // the most that loads under way may take
};

}  // namespace tare::engine
