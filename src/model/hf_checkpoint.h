// A Hugging Face model folder as a Checkpoint: config.json and model.safetensors, or the shards
// that model.safetensors.index.json lists.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "model/checkpoint.h"

namespace tare::model {

Result<std::unique_ptr<Checkpoint>> OpenHuggingFaceFolder(const std::filesystem::path& folder);

// What people call a folder: the last part of its path.
std::string FolderName(const std::filesystem::path& folder);

}  // namespace tare::model
