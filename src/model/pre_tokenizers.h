// How byte-level BPE vocabularies take text apart before merging, by the names GGUF files use
// (tokenizer.ggml.pre). The regular expressions are those of the published tokenizer.json of each
// family; a GGUF file carries only the name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tare::model {

struct PreTokenizer {
  // Regular expressions (Oniguruma syntax), applied one after the other; each isolates its matches.
  std::vector<std::string> splits;
  bool isolate_digits = false;  // one digit a piece
  bool gpt2_words = false;      // then GPT-2's own expression
  bool nfc = false;             // text is brought to normalization form C first
  bool ignore_merges = false;   // a piece that is a token is taken whole
  bool adds_bos = false;        // unless the file says otherwise
};

// kUnsupported for a name we do not know: guessing would give wrong ids without a sign of it.
Result<PreTokenizer> FindPreTokenizer(std::string_view name);

// The "normalizer" and "pre_tokenizer" of a tokenizer.json.
std::string NormalizerJson(const PreTokenizer& pre);
std::string PreTokenizerJson(const PreTokenizer& pre);

}  // namespace tare::model
