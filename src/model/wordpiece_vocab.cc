#include "model/wordpiece_vocab.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "model/json_file.h"

namespace tare::model {
namespace {

using Json = nlohmann::json;

std::string Name(const Json& config, const char* key, const char* usual) {
  std::string name = TokenName(config, key);
  return name.empty() ? usual : name;
}

}  // namespace

Result<std::string> WordPieceTokenizerJson(std::string_view vocab, const Json& config) {
  Json pieces = Json::object();
  int id = 0;
  while (vocab.ends_with('\n')) vocab.remove_suffix(1);
  for (std::string_view line : Split(vocab, '\n')) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    pieces[std::string(line)] = id++;
  }
  const std::string unknown = Name(config, "unk_token", "[UNK]");
  const std::string begin = Name(config, "cls_token", "[CLS]");
  const std::string end = Name(config, "sep_token", "[SEP]");
  std::map<int, std::string> special;  // by id, as added tokens must come
  for (const std::string& name : {unknown, begin, end, Name(config, "pad_token", "[PAD]"),
                                  Name(config, "mask_token", "[MASK]")}) {
    if (pieces.contains(name)) special[pieces[name].get<int>()] = name;
  }
  for (const std::string& name : {unknown, begin, end}) {
    if (pieces.contains(name)) continue;
    return Fail(ErrorKind::kCorrupt, "vocab.txt has no line '{}', a token every text needs", name);
  }
  Json added = Json::array();
  for (const auto& [number, name] : special) {
    added.push_back({{"id", number},
                     {"content", name},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const auto token = [](const std::string& name, int type) {
    return Json{{"SpecialToken", {{"id", name}, {"type_id", type}}}};
  };
  const auto sequence = [](const char* name, int type) {
    return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  Json names = Json::object();
  for (const std::string& name : {begin, end}) {
    names[name] = {
        {"id", name}, {"ids", Json::array({pieces[name]})}, {"tokens", Json::array({name})}};
  }
  Json accents;  // null: as lower-casing does
  if (config.contains("strip_accents") && config["strip_accents"].is_boolean()) {
    accents = config["strip_accents"];
  }
  const Json tokenizer = {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer",
       {{"type", "BertNormalizer"},
        {"clean_text", true},
        {"handle_chinese_chars", JsonFlag(config, "tokenize_chinese_chars").value_or(true)},
        {"strip_accents", accents},
        {"lowercase", JsonFlag(config, "do_lower_case").value_or(true)}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", Json::array({token(begin, 0), sequence("A", 0), token(end, 0)})},
        {"pair", Json::array({token(begin, 0), sequence("A", 0), token(end, 0), sequence("B", 1),
                              token(end, 1)})},
        {"special_tokens", names}}},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", unknown},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 100},
        {"vocab", pieces}}}};
  return tokenizer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tare::model
