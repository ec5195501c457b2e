#include "model/text.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "model/gguf_tokenizer.h"
#include "model/hf_text.h"

namespace tare::model {
namespace {

// Names under which published models end a text, a turn or a call.
constexpr std::array<std::string_view, 15> kEndNames = {
    "</s>",       "<|endoftext|>", "<|end_of_text|>",       "<|im_end|>", "<|eot_id|>",
    "<|eom_id|>", "<end_of_turn>", "<｜end▁of▁sentence｜>", "<|end|>",    "<|return|>",
    "<|call|>",   "<|eot|>",       "<|END_OF_TURN_TOKEN|>", "[EOT]",      "[EOS]",
};

void AddId(const std::optional<int>& id, std::vector<TokenId>& ids) {
  if (id) ids.push_back(static_cast<TokenId>(*id));
}

Result<std::optional<int>> OptionalId(const GgufFile& file, std::string_view key, int size) {
  if (!file.Has(key)) return std::nullopt;
  TARE_TRY(const std::int64_t id, file.Int(key));
  if (id < 0 || id >= size) {
    return Fail(ErrorKind::kCorrupt, "'{}': {} is {}, but the vocabulary has {} tokens",
                file.name(), key, id, size);
  }
  return static_cast<int>(id);
}

Result<std::optional<float>> OptionalFloat(const GgufFile& file, std::string_view key) {
  if (!file.Has(key)) return std::nullopt;
  TARE_TRY(const double value, file.Float(key));
  return static_cast<float>(value);
}

Result<SamplingAdvice> ReadSampling(const GgufFile& file) {
  SamplingAdvice advice;
  TARE_TRY(advice.temperature, OptionalFloat(file, "general.sampling.temp"));
  TARE_TRY(advice.top_p, OptionalFloat(file, "general.sampling.top_p"));
  TARE_TRY(advice.min_p, OptionalFloat(file, "general.sampling.min_p"));
  TARE_TRY(advice.repetition_penalty, OptionalFloat(file, "general.sampling.penalty_repeat"));
  if (file.Has("general.sampling.top_k")) {
    TARE_TRY(const std::int64_t top_k, file.Int("general.sampling.top_k"));
    advice.top_k = static_cast<int>(std::clamp<std::int64_t>(top_k, 0, 1 << 30));
  }
  return advice;
}

std::string ConstantsJson(const Tokenizer& tokenizer, std::optional<TokenId> bos,
                          std::optional<TokenId> eos) {
  nlohmann::json constants = {{"bos_token", ""}, {"eos_token", ""}};
  if (bos) constants["bos_token"] = tokenizer.TokenPiece(*bos);
  if (eos) constants["eos_token"] = tokenizer.TokenPiece(*eos);
  return constants.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::optional<ChatTemplate> ParseTemplateOrWarn(std::string_view source,
                                                std::string_view constants_json,
                                                std::string_view name) {
  auto parsed = ChatTemplate::Parse(source, constants_json);
  if (parsed) return std::move(*parsed);
  LogWarn("'{}': {}; chats are refused, plain prompts work", name, parsed.error().message);
  return std::nullopt;
}

std::vector<TokenId> KnownEndTokens(const Tokenizer& tokenizer) {
  // Where an answer is made of several messages, the end of one is not the end of the answer.
  const bool several_messages = tokenizer.Find("<|return|>").has_value();
  std::vector<TokenId> ids;
  for (const std::string_view name : kEndNames) {
    if (several_messages && name == "<|end|>") continue;
    const auto id = tokenizer.Find(name);
    if (id && tokenizer.IsSpecial(*id)) ids.push_back(*id);
  }
  return ids;
}

Text::Text(Parts parts) : parts_(std::move(parts)) {
  std::sort(parts_.end_ids.begin(), parts_.end_ids.end());
  parts_.end_ids.erase(std::unique(parts_.end_ids.begin(), parts_.end_ids.end()),
                       parts_.end_ids.end());
}

const ChatTemplate* Text::chat_template() const {
  return parts_.chat_template ? &*parts_.chat_template : nullptr;
}

bool Text::IsEnd(TokenId id) const {
  return std::binary_search(parts_.end_ids.begin(), parts_.end_ids.end(), id);
}

Result<std::vector<TokenId>> Text::EncodePrompt(std::string_view prompt) const {
  return parts_.tokenizer.Encode(prompt);
}

Result<std::vector<TokenId>> Text::EncodeChat(const ChatInput& input) const {
  if (!parts_.chat_template) {
    return Fail(ErrorKind::kUnsupported,
                "this model has no chat template: use /v1/completions, or a chat model");
  }
  TARE_TRY(const std::string prompt, parts_.chat_template->Render(input, &parts_.tokenizer));
  // The template writes BOS itself where the model wants one.
  return parts_.tokenizer.Encode(prompt, {.add_special = false, .specials = Specials::kGuarded});
}

Result<std::string> Text::RenderChat(const ChatInput& input) const {
  if (!parts_.chat_template) {
    return Fail(ErrorKind::kUnsupported, "this model has no chat template");
  }
  return parts_.chat_template->Render(input);
}

Result<std::shared_ptr<const Text>> LoadText(const GgufFile& file) {
  TARE_TRY(const GgufVocabulary vocabulary, ReadGgufVocabulary(file));
  auto json = TokenizerJson(vocabulary);
  if (!json) return Context(std::move(json).error(), "'{}'", file.name());
  auto tokenizer = Tokenizer::FromJson(*json);
  if (!tokenizer) return Context(std::move(tokenizer).error(), "'{}'", file.name());

  Text::Parts parts{.tokenizer = std::move(*tokenizer)};
  if (vocabulary.bos) parts.bos = static_cast<TokenId>(*vocabulary.bos);
  if (vocabulary.eos) parts.eos = static_cast<TokenId>(*vocabulary.eos);
  parts.end_ids = KnownEndTokens(parts.tokenizer);
  AddId(vocabulary.eos, parts.end_ids);
  const int size = static_cast<int>(vocabulary.tokens.size());
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    TARE_TRY(const auto id, OptionalId(file, key, size));
    AddId(id, parts.end_ids);
  }
  TARE_TRY(parts.sampling, ReadSampling(file));
  if (file.Has("tokenizer.chat_template")) {
    TARE_TRY(const std::string_view source, file.String("tokenizer.chat_template"));
    const std::string constants = ConstantsJson(parts.tokenizer, parts.bos, parts.eos);
    parts.chat_template = ParseTemplateOrWarn(source, constants, file.name());
  }
  return std::make_shared<const Text>(std::move(parts));
}

Result<std::shared_ptr<const Text>> LoadText(const std::filesystem::path& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) return LoadHfText(path);
  TARE_TRY(const GgufFile file, GgufFile::Open(path));
  return LoadText(file);
}

}  // namespace tare::model
