// From a checkpoint to a model ready to compute, with the memory it needs known beforehand.
//
// Weights are converted and packed one matrix at a time, so that loading needs little more memory
// than the loaded model. The mapping stays in use afterwards (token embeddings are gathered from
// it) and is shared with the file: file and checkpoint may be destroyed once the model is loaded,
// unless it was parsed over bytes of the caller's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/kv_pages.h"
#include "kernels/matmul.h"
#include "model/gguf.h"
#include "model/language_model.h"
#include "model/memory_need.h"

namespace tare::model {

class Checkpoint;
class PackedCacheReader;
class PackedCacheWriter;

struct LoadOptions {
  // What linear layers compute with; empty: what the file holds, with no or least loss. With kInt4
  // the output head is kept in INT8, which costs little and is where rounding shows first.
  std::optional<kernels::WeightType> dtype;
  ThreadPool* pool = nullptr;  // must outlive the model, which computes with it
  // Refuse, before loading, a model whose weights alone do not fit the memory there is.
  bool check_memory = true;
  // Packed matrices of an earlier start, and where to keep those that had to be packed now. Both
  // may be null; they are used while loading only. Failing to keep warns and does not fail the
  // load.
  const PackedCacheReader* packed = nullptr;
  PackedCacheWriter* keep = nullptr;
  // Sees every input of every linear layer while the model computes, by the matrix's name; matrices
  // computed as one have theirs joined with '+', experts their number behind it, "[3]". Empty:
  // nothing is observed. x: [rows, cols].
  using Observer =
      std::function<void(std::string_view name, std::span<const float> x, std::int64_t cols)>;
  Observer observe;
  // Called between matrices from the loading thread: share done in [0, 1], what comes next.
  std::function<void(double fraction, std::string_view what)> progress;
};

// "auto" (empty), "f32", "bf16", "int8", "int4"; anything else is an error naming these.
Result<std::optional<kernels::WeightType>> ParseDtype(std::string_view text);

// A .gguf file, or a Hugging Face folder with config.json and safetensors.
Result<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::filesystem::path& path);

Result<std::unique_ptr<LanguageModel>> LoadModel(const Checkpoint& checkpoint,
                                                 const LoadOptions& options);
Result<std::unique_ptr<LanguageModel>> LoadModel(const GgufFile& file, const LoadOptions& options);

// `kv_tokens` counts the tokens of all sequences held at a time.
Result<MemoryNeed> EstimateMemory(const Checkpoint& checkpoint,
                                  std::optional<kernels::WeightType> dtype, std::uint64_t kv_tokens,
                                  kernels::KvType kv_type = kernels::KvType::kBf16);
Result<MemoryNeed> EstimateMemory(const GgufFile& file, std::optional<kernels::WeightType> dtype,
                                  std::uint64_t kv_tokens,
                                  kernels::KvType kv_type = kernels::KvType::kBf16);

}  // namespace tare::model
