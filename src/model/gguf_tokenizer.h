// A tokenizer.json from the vocabulary a GGUF file carries, so that one library encodes for both.
//
//   tokenizer.ggml.model = gpt2    byte-level BPE with its merges and a named pre-tokenizer
//   tokenizer.ggml.model = llama   SentencePiece BPE with byte fallback: the file has scores, and
//                                  merges are rebuilt from them as Hugging Face's converter does
//                                  (every split of a piece into two pieces, best score first)
//
// Other kinds are refused by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/gguf.h"

namespace tare::model {

// tokenizer.ggml.token_type
enum class GgufTokenType : int {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Views into the file; valid while it is open.
struct GgufVocabulary {
  std::string_view model;
  std::string_view pre;
  std::vector<std::string_view> tokens;  // by id
  std::vector<GgufTokenType> types;      // as many
  std::vector<float> scores;             // as many, for `llama`
  std::vector<std::string_view> merges;  // "left right", by rank, for `gpt2`
  std::optional<bool> add_bos;           // absent: what the kind does
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  std::optional<int> bos;
  std::optional<int> eos;
  std::optional<int> unknown;
};

// Checks counts and id ranges; every problem names its key.
Result<GgufVocabulary> ReadGgufVocabulary(const GgufFile& file);

Result<std::string> TokenizerJson(const GgufVocabulary& vocabulary);

}  // namespace tare::model
