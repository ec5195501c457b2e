// Writes a quantised model in the format of its source.
//
// A GGUF file becomes one with the same metadata, whose rounded matrices are Q4_0, Q4_1 (zero
// points) or Q8_0; groups of more than 32 repeat their scale. A Hugging Face folder becomes a
// folder with one model.safetensors, "quantization_config" in config.json and the source's other
// small files: "awq" with gemm packing for 4 bits with zero points when asked for, else
// compressed-tensors "pack-quantized". Norms that took scales in are stored as F32.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "eval/awq.h"
#include "model/checkpoint.h"

namespace tare::eval {

// Refuses, before any work, an `out` that exists already, or a group that a folder cannot hold.
Status CheckOutput(const std::filesystem::path& source, const std::filesystem::path& out,
                   const model::Checkpoint& checkpoint, const RoundingRule& rule);

// What `out` takes on disk afterwards, in bytes of model data.
Result<std::uint64_t> WriteQuantized(const std::filesystem::path& source,
                                     const std::filesystem::path& out,
                                     const model::Checkpoint& checkpoint,
                                     const QuantizedTensors& tensors, const RoundingRule& rule,
                                     bool as_awq, ThreadPool& pool);

}  // namespace tare::eval
