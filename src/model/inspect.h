// What a model needs, told from its facts: weights by part and precision, KV per token, and how
// many sequences of which length fit a machine. Nothing is loaded.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/kv_pages.h"
#include "kernels/matmul.h"
#include "model/model_config.h"
#include "model/parameter_count.h"

namespace tare::model {

inline constexpr std::array kPrecisions = {kernels::WeightType::kF32, kernels::WeightType::kBf16,
                                           kernels::WeightType::kInt8, kernels::WeightType::kInt4};

struct PartSize {
  const char* name = "";  // "attention"
  std::uint64_t weights = 0;
  std::array<std::uint64_t, kPrecisions.size()> bytes = {};  // at each of kPrecisions
};

// How many sequences of `length` tokens fit beside weights of type `dtype`.
struct Capacity {
  kernels::WeightType dtype = kernels::WeightType::kBf16;
  int length = 0;
  std::uint64_t sequences = 0;
};

struct Inspection {
  ParameterCount parameters;
  std::vector<PartSize> parts;  // those the model has
  std::array<std::uint64_t, kPrecisions.size()> weight_bytes = {};
  std::uint64_t kv_bytes_per_token = 0;  // 16 bit
  std::vector<Capacity> capacities;      // per dtype, lengths up to the model's context
};

// Precisions as the engine packs them: INT8 has a 16-bit scale for 32 weights, INT4 a minimum
// besides; the embedding table stays at 16 bits (32 in F32), and the head at INT8 in INT4.
Inspection Inspect(const ModelConfig& config, std::uint64_t available_bytes);

}  // namespace tare::model
