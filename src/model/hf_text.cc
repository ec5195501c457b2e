#include "model/hf_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/json_file.h"
#include "model/json_text.h"
#include "model/pre_tokenizers.h"
#include "model/wordpiece_vocab.h"

namespace tare::model {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kConfigLimit = std::size_t{64} << 20;      // bytes
constexpr std::size_t kTokenizerLimit = std::size_t{256} << 20;  // bytes

// The object, or an empty one when there is no such file.
Result<Json> ReadObject(const std::filesystem::path& path) {
  TARE_TRY(Json json, ReadJsonFile(path, kConfigLimit));
  if (json.is_null()) return Json::object();
  if (!json.is_object()) {
    return Fail(ErrorKind::kCorrupt, "'{}' is not a JSON object", path.string());
  }
  return json;
}

// One template, or several by name of which "default" is the one for chats.
std::string TemplateSource(const Json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  std::string source;
  if (!found->is_array()) return source;
  for (const Json& entry : *found) {
    if (!entry.is_object() || TokenName(entry, "template").empty()) continue;
    if (source.empty() || TokenName(entry, "name") == "default") {
      source = TokenName(entry, "template");
    }
  }
  return source;
}

// All ids under a key that holds one or a list of them.
void AddIds(const Json& config, const char* key, int vocab, std::vector<TokenId>& ids) {
  const auto found = config.find(key);
  if (found == config.end()) return;
  const Json list = found->is_array() ? *found : Json::array({*found});
  for (const Json& id : list) {
    if (!id.is_number_integer()) continue;
    const auto value = id.get<std::int64_t>();
    if (value >= 0 && value < vocab) ids.push_back(static_cast<TokenId>(value));
  }
}

template <typename T>
std::optional<T> Number(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_number()) return std::nullopt;
  return found->get<T>();
}

// Hugging Face's Llama class replaces the file's post-processor by what its flags say; other
// classes leave the file alone.
Status ApplyLlamaFlags(const Json& config, std::string& tokenizer_json) {
  if (!TokenName(config, "tokenizer_class").starts_with("LlamaTokenizer")) return {};
  const auto add_bos = JsonFlag(config, "add_bos_token");
  const auto add_eos = JsonFlag(config, "add_eos_token");
  if (!add_bos && !add_eos) return {};
  Json json = Json::parse(tokenizer_json, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("added_tokens") || !json["added_tokens"].is_array()) {
    return Fail(ErrorKind::kCorrupt, "tokenizer.json has no added_tokens");
  }
  Json single = Json::array();
  Json special = Json::object();
  const auto add = [&](const std::string& name) {
    for (const Json& token : json["added_tokens"]) {
      if (!token.is_object() || TokenName(token, "content") != name) continue;
      if (!token.contains("id") || !token["id"].is_number_unsigned()) continue;
      single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
      special[name] = {
          {"id", name}, {"ids", Json::array({token["id"]})}, {"tokens", Json::array({name})}};
      return;
    }
  };
  if (add_bos.value_or(true)) add(TokenName(config, "bos_token"));
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (add_eos.value_or(false)) add(TokenName(config, "eos_token"));
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", single},
                            {"pair", Json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                                                  {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}})},
                            {"special_tokens", special}};
  tokenizer_json = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return {};
}

// The tokens of Kimi's vocabulary that follow the ranks: the file names some, the rest are
// reserved.
constexpr int kTiktokenSpecials = 256;

Result<Tokenizer> ReadTiktoken(const std::filesystem::path& path, const Json& config) {
  TARE_TRY(const std::string model, ReadFile(path, kTokenizerLimit));
  TARE_TRY(const PreTokenizer pre, FindPreTokenizer("kimi-k2"));
  const auto lines = std::count(model.begin(), model.end(), '\n');
  const auto base = static_cast<int>(lines) + (model.empty() || model.back() == '\n' ? 0 : 1);
  const auto named = config.find("added_tokens_decoder");
  Json added = Json::array();
  for (int id = base; id < base + kTiktokenSpecials; ++id) {
    std::string name = fmt::format("<|reserved_token_{}|>", id);
    bool special = true;
    const std::string key = std::to_string(id);
    if (named != config.end() && named->is_object() && named->contains(key)) {
      name = TokenName((*named)[key], "content");
      special = JsonFlag((*named)[key], "special").value_or(true);
    }
    added.push_back({{"id", id},
                     {"content", name},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  return Tokenizer::FromTiktoken(model, pre.splits.front(),
                                 added.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Result<Tokenizer> ReadTokenizerJson(const std::filesystem::path& path, const Json& config) {
  TARE_TRY(std::string json, ReadFile(path, kTokenizerLimit));
  TARE_RETURN_IF_ERROR(ApplyLlamaFlags(config, json));
  return Tokenizer::FromJson(json);
}

Result<Tokenizer> ReadVocabulary(const std::filesystem::path& path, const Json& config) {
  TARE_TRY(const std::string vocab, ReadFile(path, kTokenizerLimit));
  TARE_TRY(const std::string json, WordPieceTokenizerJson(vocab, config));
  return Tokenizer::FromJson(json);
}

}  // namespace

Result<std::shared_ptr<const Text>> LoadHfText(const std::filesystem::path& folder) {
  TARE_TRY(const Json config, ReadObject(folder / "tokenizer_config.json"));
  TARE_TRY(const Json generation, ReadObject(folder / "generation_config.json"));
  TARE_TRY(const Json model, ReadObject(folder / "config.json"));

  std::error_code code;
  std::filesystem::path path = folder / "tokenizer.json";
  const bool has_json = std::filesystem::exists(path, code);
  if (!has_json) path = folder / "tiktoken.model";
  const bool has_ranks = !has_json && std::filesystem::exists(path, code);
  if (!has_json && !has_ranks) path = folder / "vocab.txt";
  if (!std::filesystem::exists(path, code)) {
    return Fail(ErrorKind::kNotFound,
                "'{}' has neither tokenizer.json nor tiktoken.model nor vocab.txt",
                folder.string());
  }
  auto tokenizer = has_json    ? ReadTokenizerJson(path, config)
                   : has_ranks ? ReadTiktoken(path, config)
                               : ReadVocabulary(path, config);
  if (!tokenizer) return Context(std::move(tokenizer).error(), "'{}'", path.string());

  Text::Parts parts{.tokenizer = std::move(*tokenizer)};
  const int vocab = parts.tokenizer.vocab_size();
  std::string constants = "{";
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    if (constants.size() > 1) constants += ',';
    AppendJsonString(key, constants);
    constants += ':';
    AppendJsonString(TokenName(config, key), constants);
  }
  constants += '}';
  parts.bos = parts.tokenizer.Find(TokenName(config, "bos_token"));
  parts.eos = parts.tokenizer.Find(TokenName(config, "eos_token"));

  parts.end_ids = KnownEndTokens(parts.tokenizer);
  if (parts.eos) parts.end_ids.push_back(*parts.eos);
  AddIds(generation, "eos_token_id", vocab, parts.end_ids);
  AddIds(model, "eos_token_id", vocab, parts.end_ids);
  parts.sampling = {.temperature = Number<float>(generation, "temperature"),
                    .top_p = Number<float>(generation, "top_p"),
                    .top_k = Number<int>(generation, "top_k"),
                    .min_p = Number<float>(generation, "min_p"),
                    .repetition_penalty = Number<float>(generation, "repetition_penalty")};

  std::string source = TemplateSource(config);
  if (std::filesystem::exists(folder / "chat_template.jinja", code)) {
    TARE_TRY(source, ReadFile(folder / "chat_template.jinja", kConfigLimit));
  } else if (source.empty()) {
    TARE_TRY(const Json separate, ReadObject(folder / "chat_template.json"));
    source = TemplateSource(separate);
  }
  if (!source.empty()) {
    parts.chat_template = ParseTemplateOrWarn(source, constants, folder.string());
  }
  return std::make_shared<const Text>(std::move(parts));
}

}  // namespace tare::model
