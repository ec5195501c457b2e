#include "model/tokenizer.h"

#include "model/detokenizer.h"
#include "model/text_bridge.h"

namespace tare::model {
namespace {

constexpr std::string_view kUnusable = "not a usable tokenizer";

// Owns the parts of a tb_vocabulary.
struct BridgeVocabulary {
  BridgeVocabulary() = default;
  BridgeVocabulary(const BridgeVocabulary&) = delete;
  BridgeVocabulary& operator=(const BridgeVocabulary&) = delete;
  ~BridgeVocabulary() {
    tb_buffer_free(value.bytes);
    tb_buffer_free(value.pieces);
    tb_buffer_free(value.special);
    tb_numbers_free(value.byte_offsets);
    tb_numbers_free(value.piece_offsets);
  }
  tb_vocabulary value{};
};

std::string ToString(const tb_buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data), buffer.size};
}

std::vector<std::uint32_t> ToVector(const tb_numbers& numbers) {
  return {numbers.data, numbers.data + numbers.size};
}

std::string_view Part(const std::string& all, const std::vector<std::uint32_t>& offset,
                      TokenId id) {
  const auto i = static_cast<std::size_t>(ToInt(id));
  if (ToInt(id) < 0 || i + 1 >= offset.size()) return {};
  return std::string_view(all).substr(offset[i], offset[i + 1] - offset[i]);
}

}  // namespace

void Tokenizer::Deleter::operator()(tb_tokenizer* handle) const { tb_tokenizer_free(handle); }

Result<Tokenizer> Tokenizer::FromJson(std::string_view json) {
  BridgeBuffer error;
  tb_tokenizer* handle = nullptr;
  if (auto status = tb_tokenizer_from_json(ToSlice(json), &handle, &error.value)) {
    return BridgeFail(status, error, ErrorKind::kCorrupt, kUnusable);
  }
  return Adopt(handle);
}

Result<Tokenizer> Tokenizer::FromTiktoken(std::string_view model, std::string_view pattern,
                                          std::string_view added_tokens_json) {
  BridgeBuffer error;
  tb_tokenizer* handle = nullptr;
  if (auto status = tb_tokenizer_from_tiktoken(ToSlice(model), ToSlice(pattern),
                                               ToSlice(added_tokens_json), &handle, &error.value)) {
    return BridgeFail(status, error, ErrorKind::kCorrupt, kUnusable);
  }
  return Adopt(handle);
}

Result<Tokenizer> Tokenizer::Adopt(tb_tokenizer* handle) {
  Tokenizer tokenizer;
  tokenizer.handle_.reset(handle);
  BridgeBuffer error;
  BridgeVocabulary vocabulary;
  if (auto status = tb_tokenizer_vocabulary(handle, &vocabulary.value, &error.value)) {
    return BridgeFail(status, error, ErrorKind::kCorrupt, kUnusable);
  }
  tokenizer.bytes_ = ToString(vocabulary.value.bytes);
  tokenizer.byte_offset_ = ToVector(vocabulary.value.byte_offsets);
  tokenizer.pieces_ = ToString(vocabulary.value.pieces);
  tokenizer.piece_offset_ = ToVector(vocabulary.value.piece_offsets);
  tokenizer.special_.assign(vocabulary.value.special.data,
                            vocabulary.value.special.data + vocabulary.value.special.size);
  tokenizer.strips_leading_space_ = vocabulary.value.strips_leading_space != 0;
  if (tokenizer.special_.empty()) {
    return Fail(ErrorKind::kCorrupt, "{}: its vocabulary is empty", kUnusable);
  }
  TARE_TRY(tokenizer.added_ids_, tokenizer.Encode(""));
  return tokenizer;
}

Result<std::vector<TokenId>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  BridgeBuffer error;
  BridgeNumbers ids;
  const bool honour = options.specials != Specials::kText;
  if (auto status = tb_tokenizer_encode(handle_.get(), ToSlice(text), honour, options.add_special,
                                        &ids.value, &error.value)) {
    return BridgeFail(status, error, ErrorKind::kInvalidArgument, "text cannot be tokenized");
  }
  std::vector<TokenId> result;
  result.reserve(ids.span().size());
  for (const std::uint32_t id : ids.span()) result.push_back(static_cast<TokenId>(id));
  return result;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, {.skip_special = skip_special});
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Push(id);
  return text + detokenizer.Finish();
}

std::string_view Tokenizer::TokenBytes(TokenId id) const { return Part(bytes_, byte_offset_, id); }

std::string_view Tokenizer::TokenPiece(TokenId id) const {
  return Part(pieces_, piece_offset_, id);
}

bool Tokenizer::IsSpecial(TokenId id) const {
  return ToInt(id) >= 0 && ToInt(id) < vocab_size() &&
         special_[static_cast<std::size_t>(ToInt(id))] != 0;
}

std::optional<TokenId> Tokenizer::Find(std::string_view piece) const {
  const std::int64_t id = tb_tokenizer_find(handle_.get(), ToSlice(piece));
  if (id < 0) return std::nullopt;
  return static_cast<TokenId>(id);
}

}  // namespace tare::model
