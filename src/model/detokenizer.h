// Token ids to text while they are being generated. A token may end in the middle of a character
// (byte-level vocabularies split emoji and Chinese freely), so the bytes of an unfinished character
// wait for the next token. Appending all pieces gives exactly Tokenizer::Decode of all ids.
#pragma once

#include <string>
#include <string_view>

#include "base/types.h"
#include "model/tokenizer.h"

namespace tare::model {

// Appends `bytes` to `out` as well-formed UTF-8, one U+FFFD for every maximal ill-formed part (the
// WHATWG and Rust rule), and returns how many bytes at the end are the beginning of a character
// that may still be completed; those are not appended.
std::size_t AppendUtf8Lossy(std::string_view bytes, std::string& out);

// Ownership: keeps a reference to the tokenizer. Thread safety: one thread.
// Cost: constant per byte; nothing but at most three pending bytes is kept.
class Detokenizer {
 public:
  struct Options {
    bool skip_special = true;
    // The text continues another one: a leading blank is text, not SentencePiece's dummy prefix.
    bool continues = false;
  };
  explicit Detokenizer(const Tokenizer& tokenizer) : Detokenizer(tokenizer, Options()) {}
  Detokenizer(const Tokenizer& tokenizer, Options options);

  // The characters completed by this token; often all of it, sometimes nothing. Always whole,
  // well-formed UTF-8.
  std::string Push(TokenId id);
  // The end of the text: U+FFFD when a character stayed unfinished, else nothing.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool strip_next_space_;
  std::string pending_;  // at most 3 bytes: the beginning of a character
};

}  // namespace tare::model
