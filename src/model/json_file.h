// The small JSON files of Hugging Face folders: reading one that may not be there, and values whose
// types files disagree on.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"

namespace tare::model {

// Null when there is no such file; an error when it is larger than `limit` bytes or not JSON.
Result<nlohmann::json> ReadJsonFile(const std::filesystem::path& path, std::size_t limit);

// A token of tokenizer_config.json: its name, or an object with it as "content". Empty: neither.
std::string TokenName(const nlohmann::json& object, const char* key);
std::optional<bool> JsonFlag(const nlohmann::json& object, const char* key);

}  // namespace tare::model
