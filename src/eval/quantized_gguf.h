// A GGUF file with the metadata of another and some of its tensors rounded.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "eval/awq.h"

namespace tare::eval {

Status WriteQuantizedGguf(const std::filesystem::path& source, const std::filesystem::path& out,
                          const QuantizedTensors& tensors, const RoundingRule& rule);

}  // namespace tare::eval
