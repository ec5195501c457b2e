// Text to token ids and back, exactly as the checkpoint's own tokenizer does it: the Hugging Face
// `tokenizers` library runs underneath (rust/textbridge), fed with a tokenizer.json or with one
// built from GGUF metadata (gguf_tokenizer.h).
//
// Control tokens. A vocabulary holds tokens that steer the model ("<|im_end|>") beside those that
// stand for text. Text from outside must never turn into control tokens, else a user could end his
// own turn and speak as the system. Hence three ways to encode:
//   kText     control tokens' names are ordinary text (the default: prompts, documents)
//   kTrusted  control tokens' names become control tokens (text the operator wrote)
//   kGuarded  as kTrusted, except where the text was marked by ChatTemplate::Render: the template's
//             own markers become control tokens, the same words inside a message stay text
//
// The mark is one code point, kGuardMark, put inside every control token's name that occurs in
// message content (and before or after a fragment at the edge of a string, so that no name can be
// put together across strings). Names are searched before marks are removed, and marks are removed
// before text is split into words, so a guarded prompt has the very ids it would have had if the
// message's words had always been plain text.
//
// Thread safety: a Tokenizer is immutable; every method may be called from many threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"

struct tb_tokenizer;

namespace tare::model {

// U+FDD1, a code point Unicode reserves for use inside a program. In guarded text it is always a
// mark; one that comes in a message is replaced by U+FFFD before rendering.
inline constexpr std::string_view kGuardMark = "\xEF\xB7\x91";

enum class Specials { kText, kTrusted, kGuarded };

struct EncodeOptions {
  // Whether the tokens the model expects around a text (BOS, for most that have one) are added.
  bool add_special = true;
  Specials specials = Specials::kText;
};

class Tokenizer {
 public:
  // `json` is the content of a tokenizer.json. kCorrupt when it is not one.
  static Result<Tokenizer> FromJson(std::string_view json);

  // `model` is the content of a tiktoken.model (lines "base64 rank"), `pattern` the regular
  // expression that takes text apart, `added_tokens_json` an array as in a tokenizer.json.
  static Result<Tokenizer> FromTiktoken(std::string_view model, std::string_view pattern,
                                        std::string_view added_tokens_json);

  Tokenizer(Tokenizer&&) noexcept = default;
  Tokenizer& operator=(Tokenizer&&) noexcept = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ill-formed UTF-8 is read as U+FFFD, as Python's decode(errors="replace") does.
  // kInvalidArgument when the text defeats the tokenizer's regular expressions (their retry limit
  // guards against texts built to be slow).
  Result<std::vector<TokenId>> Encode(std::string_view text, EncodeOptions options = {}) const;

  // The text the ids stand for, well-formed UTF-8 (bytes that form no character become U+FFFD).
  // Ids outside the vocabulary stand for nothing.
  std::string Decode(std::span<const TokenId> ids, bool skip_special = true) const;

  // The bytes one token stands for, in mid-text: may be half a character; a control token's bytes
  // are its name. Empty for an id outside the vocabulary. The view lives as long as the tokenizer.
  std::string_view TokenBytes(TokenId id) const;
  // The token as the vocabulary spells it ("Ġhello", "▁hello", "<0x0A>").
  std::string_view TokenPiece(TokenId id) const;
  bool IsSpecial(TokenId id) const;

  // Highest id + 1. A model's logits may be wider (padding rows).
  int vocab_size() const { return static_cast<int>(special_.size()); }
  // The id of a token as the vocabulary spells it.
  std::optional<TokenId> Find(std::string_view piece) const;
  // Texts begin with a blank that stands for no text (SentencePiece's dummy prefix).
  bool strips_leading_space() const { return strips_leading_space_; }

  // Ids Encode adds to an empty text when add_special is set: usually none or BOS.
  std::span<const TokenId> added_ids() const { return added_ids_; }

  const tb_tokenizer* handle() const { return handle_.get(); }

 private:
  struct Deleter {
    void operator()(tb_tokenizer* handle) const;
  };
  Tokenizer() = default;
  // Takes the handle and reads its vocabulary.
  static Result<Tokenizer> Adopt(tb_tokenizer* handle);

  std::unique_ptr<tb_tokenizer, Deleter> handle_;
  std::string bytes_;                        // all tokens' bytes, by id
  std::vector<std::uint32_t> byte_offset_;   // [vocab + 1] into bytes_
  std::string pieces_;                       // all tokens as spelled, by id
  std::vector<std::uint32_t> piece_offset_;  // [vocab + 1] into pieces_
  std::vector<std::uint8_t> special_;        // [vocab]
  std::vector<TokenId> added_ids_;
  bool strips_leading_space_ = false;
};

}  // namespace tare::model
