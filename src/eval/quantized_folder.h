// A Hugging Face folder with some of its tensors rounded, as AutoAWQ or compressed-tensors store
// them (the layouts are drawn in model/coded_tensor.h).
#pragma once

#include <filesystem>

#include "base/result.h"
#include "eval/awq.h"
#include "model/checkpoint.h"

namespace tare::eval {

// `awq`: as AutoAWQ does, which needs 4 bits and zero points.
Status WriteQuantizedFolder(const std::filesystem::path& source, const std::filesystem::path& out,
                            const model::Checkpoint& checkpoint, const QuantizedTensors& tensors,
                            const RoundingRule& rule, bool awq, ThreadPool& pool);

}  // namespace tare::eval
