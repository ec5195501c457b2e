// Everything about a checkpoint that has to do with text, in one shareable bundle: tokenizer, chat
// template, the tokens that end an answer, and the sampling its authors advise. The engine, the
// server and the load generator use this and nothing below it.
//
// Ownership: share it by std::shared_ptr<const Text>. Thread safety: immutable.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "model/chat_template.h"
#include "model/detokenizer.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

namespace tare::model {

// What generation_config.json (or GGUF general.sampling.*) advises; absent where it is silent.
struct SamplingAdvice {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
};

class Text {
 public:
  struct Parts {
    Tokenizer tokenizer;
    std::optional<ChatTemplate> chat_template;
    std::vector<TokenId> end_ids;
    std::optional<TokenId> bos;
    std::optional<TokenId> eos;
    SamplingAdvice sampling;
  };
  explicit Text(Parts parts);

  const Tokenizer& tokenizer() const { return parts_.tokenizer; }
  // Null when the checkpoint has none (a base model).
  const ChatTemplate* chat_template() const;
  const SamplingAdvice& sampling() const { return parts_.sampling; }
  std::optional<TokenId> bos() const { return parts_.bos; }
  std::optional<TokenId> eos() const { return parts_.eos; }

  // Tokens after which an answer is over (end of text, of turn, of message), ascending.
  std::span<const TokenId> end_ids() const { return parts_.end_ids; }
  bool IsEnd(TokenId id) const;

  // A plain prompt: BOS when the model wants it, control tokens' names are text.
  Result<std::vector<TokenId>> EncodePrompt(std::string_view prompt) const;
  // A chat: rendered by the template, control tokens only where the template put them.
  // kUnsupported when the checkpoint has no chat template.
  Result<std::vector<TokenId>> EncodeChat(const ChatInput& input) const;
  // The rendered prompt as a reader sees it (no marks).
  Result<std::string> RenderChat(const ChatInput& input) const;

 private:
  Parts parts_;
};

// From a GGUF file, or a Hugging Face folder (tokenizer.json, tokenizer_config.json,
// chat_template.jinja, generation_config.json). A chat template that does not parse is a warning,
// not an error: the checkpoint still completes plain prompts.
Result<std::shared_ptr<const Text>> LoadText(const std::filesystem::path& path);
// From a GGUF file that is open already; nothing refers to it afterwards.
Result<std::shared_ptr<const Text>> LoadText(const GgufFile& file);

// Ids of control tokens whose names are known to end an answer ("<|im_end|>", "<|eot_id|>", …).
std::vector<TokenId> KnownEndTokens(const Tokenizer& tokenizer);

}  // namespace tare::model
