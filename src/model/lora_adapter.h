// A LoRA adapter in memory: for linear layers of a base, two thin matrices whose product is added,
// y += scale * B (A x) (Hu et al. 2021, arXiv 2106.09685). It is a folder in PEFT's format,
// adapter_config.json and adapter_model.safetensors.
//
// Layers that share their input (q, k and v; gate and up) share one product with their As, stacked.
// What kv_b of latent attention gets follows its absorbed form (latent_attention_block.cc): with B
// cut into heads' parts U and V, a head's query a gets A^T (U^T a) and its answer m gets V (A m).
// The scale is in B. A and B are computed with in F32 beside a base in F32, else in BF16; where a
// rank is so small that BF16 cells would be mostly padding, B stays in F32.
//
// Ownership: an adapter owns its memory and needs neither its files nor its base afterwards.
// Thread safety: immutable once loaded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/result.h"
#include "kernels/matmul.h"
#include "model/model_config.h"

namespace tare::model {

// The products of a layer that adapters add to.
enum class LoraSite {
  kAttentionInput,   // [q | k | v]; latent: [q or q_a | kv_a]
  kAttentionOutput,  // o
  kMlpInput,         // [gate | up], of the layer or its shared experts
  kMlpOutput,        // down
  kQueryUp,          // latent: q_b
  kKeyUp,            // latent, for each head: its part of kv_b for keys, transposed
  kValueUp,          // latent, for each head: its part of kv_b for values
};
inline constexpr std::size_t kLoraSites = 7;

// One linear layer among those that share an input.
struct LoraPart {
  std::shared_ptr<const kernels::PackedMatrix> b;  // [outputs, rank], scaled; heads may share it
  std::int64_t first = 0;                          // its rows in the stack of As
  std::int64_t column = 0;                         // of the base's product, where its outputs begin
};

struct LoraMatrices {
  std::shared_ptr<const kernels::PackedMatrix> a;  // [sum of ranks, inputs]; heads may share it
  std::int64_t input = 0;                          // of a row of inputs, where these begin
  std::vector<LoraPart> parts;
};

class LoraAdapter {
 public:
  // Another one for every load in this process: pages computed with one version of an adapter are
  // never taken for another's.
  std::uint64_t id() const { return id_; }
  std::size_t bytes() const { return bytes_; }
  int modules() const { return modules_; }  // linear layers it adds to
  int max_rank() const { return max_rank_; }

  // One, or one for each head; empty: the adapter leaves this product alone.
  const std::vector<LoraMatrices>& At(int layer, LoraSite site) const {
    return layers_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(site)];
  }

  // Reads the adapter in `folder`, made for a base of these facts whose linear layers compute in
  // `base_type`. On the calling thread alone, so that a serving model keeps its own.
  static Result<std::unique_ptr<const LoraAdapter>> Load(const std::filesystem::path& folder,
                                                         const ModelConfig& base,
                                                         kernels::WeightType base_type);

  // The most bytes() can be of an adapter whose adapter_model.safetensors has `file_bytes`, for
  // asking whether it will fit before it is read.
  static std::uint64_t MostBytes(std::uint64_t file_bytes, const ModelConfig& base,
                                 kernels::WeightType base_type);

 private:
  friend class LoraLoader;
  LoraAdapter();

  const std::uint64_t id_;
  std::size_t bytes_ = 0;
  int modules_ = 0;
  int max_rank_ = 0;
  std::vector<std::array<std::vector<LoraMatrices>, kLoraSites>> layers_;
};

}  // namespace tare::model
