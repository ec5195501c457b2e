// A tokenizer.json from the vocab.txt of older BERT folders; private to the room.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tare::model {

// `vocab`: one piece a line, its id the line's number. `config`: tokenizer_config.json, which says
// how text is cleaned (do_lower_case, strip_accents, tokenize_chinese_chars) and what the special
// tokens are called. The result is what the library's own conversion of a BertTokenizer makes.
Result<std::string> WordPieceTokenizerJson(std::string_view vocab, const nlohmann::json& config);

}  // namespace tare::model
