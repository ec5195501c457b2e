// The text side of a Hugging Face folder; private to the room, LoadText is the way in.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "model/text.h"

namespace tare::model {

// tokenizer.json, tokenizer_config.json, special_tokens_map.json, chat_template.jinja,
// generation_config.json and config.json; only the first must be there. A folder without it may
// have a tiktoken.model (Kimi-K2) or a vocab.txt (BERT) instead.
Result<std::shared_ptr<const Text>> LoadHfText(const std::filesystem::path& folder);

// Absent, with a warning that names the checkpoint, when the template does not parse.
std::optional<ChatTemplate> ParseTemplateOrWarn(std::string_view source,
                                                std::string_view constants_json,
                                                std::string_view name);

}  // namespace tare::model
