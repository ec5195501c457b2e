// How a Hugging Face folder is quantised: "quantization_config" of its config.json.
//
// Of most methods only the conventions are taken from here (zero points, packing order, block
// size); bits and group sizes of a weight follow from the shapes of its tensors, since checkpoints
// mix them. Methods, versions and formats not listed are refused by name.
// Sources: AutoAWQ, AutoGPTQ, compressed-tensors, and DeepSeek-V3's README_WEIGHTS.md.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace tare::model {

enum class QuantMethod {
  kNone,
  kAwq,                // qweight, qzeros, scales; "gemm" packing
  kGptq,               // qweight, qzeros, scales, g_idx
  kCompressedTensors,  // weight_packed or weight, weight_scale, ...
  kFp8,                // weight, weight_scale_inv or weight_scale
};

struct QuantConfig {
  QuantMethod method = QuantMethod::kNone;
  // GPTQ files of version 1 store zero points less one.
  bool zeros_less_one = false;
  // GPTQ: inputs that share a scale where the shapes leave it open; 0: all of them.
  std::int64_t group = 0;
  // FP8 with scales for blocks of [rows, cols]; 0: none.
  std::int64_t block_rows = 0;
  std::int64_t block_cols = 0;
};

// `config` is config.json's object; `source` stands for the file in messages.
Result<QuantConfig> ReadQuantConfig(const nlohmann::json& config, const std::string& source);

}  // namespace tare::model
