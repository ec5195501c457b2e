#include "model/gguf_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "model/json_text.h"
#include "model/pre_tokenizers.h"

namespace tare::model {
namespace {

bool IsSpecial(GgufTokenType type) {
  return type == GgufTokenType::kControl || type == GgufTokenType::kUnknown;
}

// Tokens that are found in the text as they stand, before anything else.
bool IsAdded(GgufTokenType type) { return IsSpecial(type) || type == GgufTokenType::kUserDefined; }

Result<std::optional<int>> TokenKey(const GgufFile& file, std::string_view key, std::size_t size) {
  if (!file.Has(key)) return std::nullopt;
  TARE_TRY(const std::int64_t id, file.Int(key));
  if (id < 0 || static_cast<std::size_t>(id) >= size) {
    return Fail(ErrorKind::kCorrupt, "'{}': {} is {}, but the vocabulary has {} tokens",
                file.name(), key, id, size);
  }
  return static_cast<int>(id);
}

Result<std::optional<bool>> FlagKey(const GgufFile& file, std::string_view key) {
  if (!file.Has(key)) return std::nullopt;
  TARE_TRY(const bool flag, file.Bool(key));
  return flag;
}

std::string AddedTokensJson(const GgufVocabulary& vocabulary) {
  std::string json = "[";
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!IsAdded(vocabulary.types[id]) || vocabulary.tokens[id].empty()) continue;
    if (json.size() > 1) json += ',';
    fmt::format_to(std::back_inserter(json), R"({{"id":{},"content":)", id);
    AppendJsonString(vocabulary.tokens[id], json);
    json += R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":)";
    json += IsSpecial(vocabulary.types[id]) ? "true}" : "false}";
  }
  return json + "]";
}

std::string VocabJson(const GgufVocabulary& vocabulary) {
  std::string json = "{";
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (json.size() > 1) json += ',';
    AppendJsonString(vocabulary.tokens[id], json);
    fmt::format_to(std::back_inserter(json), ":{}", id);
  }
  return json + "}";
}

void AppendPair(std::string_view left, std::string_view right, std::string& json) {
  if (json.size() > 1) json += ',';
  json += '[';
  AppendJsonString(left, json);
  json += ',';
  AppendJsonString(right, json);
  json += ']';
}

Result<std::string> MergesJson(const GgufVocabulary& vocabulary) {
  std::string json = "[";
  for (const std::string_view merge : vocabulary.merges) {
    // The parts hold no blank, except that the first may begin with one.
    const std::size_t blank = merge.find(' ', 1);
    if (blank == std::string_view::npos || blank + 1 == merge.size()) {
      return Fail(ErrorKind::kCorrupt, "tokenizer.ggml.merges: '{}' is not two parts", merge);
    }
    AppendPair(merge.substr(0, blank), merge.substr(blank + 1), json);
  }
  return json + "]";
}

std::string MergesFromScoresJson(const GgufVocabulary& vocabulary) {
  struct Merge {
    std::string_view left;
    std::string_view right;
    float score;
    int left_id;
    int right_id;
    std::size_t order;
  };
  // Control tokens neither merge nor are merged to: no text can spell one.
  std::unordered_map<std::string_view, int> ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const GgufTokenType type = vocabulary.types[id];
    if (type == GgufTokenType::kNormal || type == GgufTokenType::kUserDefined) {
      ids.emplace(vocabulary.tokens[id], static_cast<int>(id));
    }
  }
  std::vector<Merge> merges;
  for (const auto& [piece, id] : ids) {
    // A piece of thousands of bytes is no SentencePiece piece; the bound keeps hostile files cheap.
    if (piece.size() > 512) continue;
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      const auto left = ids.find(piece.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(piece.substr(cut));
      if (right == ids.end()) continue;
      merges.push_back({left->first, right->first, vocabulary.scores[static_cast<std::size_t>(id)],
                        left->second, right->second, static_cast<std::size_t>(id)});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.left.size() != b.left.size()) return a.left.size() > b.left.size();
    if (a.right.size() != b.right.size()) return a.right.size() > b.right.size();
    if (a.order != b.order) return a.order < b.order;
    if (a.left_id != b.left_id) return a.left_id < b.left_id;
    return a.right_id < b.right_id;
  });
  std::string json = "[";
  for (const Merge& merge : merges) AppendPair(merge.left, merge.right, json);
  return json + "]";
}

std::string PostProcessorJson(const GgufVocabulary& vocabulary, bool bos_default) {
  const bool bos = vocabulary.add_bos.value_or(bos_default) && vocabulary.bos;
  const bool eos = vocabulary.add_eos.value_or(false) && vocabulary.eos;
  if (!bos && !eos) return "null";
  std::string single;
  std::string special;
  const auto add = [&](int id) {
    std::string name;
    AppendJsonString(vocabulary.tokens[static_cast<std::size_t>(id)], name);
    single += fmt::format(R"({}{{"SpecialToken":{{"id":{},"type_id":0}}}})",
                          single.empty() ? "" : ",", name);
    if (special.find(name + ":") == std::string::npos) {
      special += fmt::format(R"({}{}:{{"id":{},"ids":[{}],"tokens":[{}]}})",
                             special.empty() ? "" : ",", name, name, id, name);
    }
  };
  if (bos) add(*vocabulary.bos);
  single += single.empty() ? "" : ",";
  single += R"({"Sequence":{"id":"A","type_id":0}})";
  if (eos) add(*vocabulary.eos);
  return fmt::format(
      R"({{"type":"TemplateProcessing","single":[{}],"pair":[{{"Sequence":{{"id":"A","type_id":0}}}},)"
      R"({{"Sequence":{{"id":"B","type_id":1}}}}],"special_tokens":{{{}}}}})",
      single, special);
}

Result<std::string> ByteLevelJson(const GgufVocabulary& vocabulary) {
  TARE_TRY(const PreTokenizer pre, FindPreTokenizer(vocabulary.pre));
  TARE_TRY(const std::string merges, MergesJson(vocabulary));
  return fmt::format(
      R"({{"version":"1.0","added_tokens":{},"normalizer":{},"pre_tokenizer":{},"post_processor":{},)"
      R"("decoder":{{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}},)"
      R"("model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,)"
      R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":{},)"
      R"("vocab":{},"merges":{}}}}})",
      AddedTokensJson(vocabulary), NormalizerJson(pre), PreTokenizerJson(pre),
      PostProcessorJson(vocabulary, pre.adds_bos), pre.ignore_merges, VocabJson(vocabulary),
      merges);
}

std::string SentencePieceJson(const GgufVocabulary& vocabulary) {
  const bool prefix = vocabulary.add_space_prefix.value_or(true);
  std::string unknown = "null";
  if (vocabulary.unknown) {
    unknown.clear();
    AppendJsonString(vocabulary.tokens[static_cast<std::size_t>(*vocabulary.unknown)], unknown);
  }
  return fmt::format(
      R"({{"version":"1.0","added_tokens":{},"normalizer":{{"type":"Sequence","normalizers":[{})"
      R"({{"type":"Replace","pattern":{{"String":" "}},"content":"▁"}}]}},"pre_tokenizer":null,)"
      R"("post_processor":{},"decoder":{{"type":"Sequence","decoders":[)"
      R"({{"type":"Replace","pattern":{{"String":"▁"}},"content":" "}},{{"type":"ByteFallback"}},)"
      R"({{"type":"Fuse"}}{}]}},)"
      R"("model":{{"type":"BPE","dropout":null,"unk_token":{},"continuing_subword_prefix":null,)"
      R"("end_of_word_suffix":null,"fuse_unk":true,"byte_fallback":true,"ignore_merges":false,)"
      R"("vocab":{},"merges":{}}}}})",
      AddedTokensJson(vocabulary), prefix ? R"({"type":"Prepend","prepend":"▁"},)" : "",
      PostProcessorJson(vocabulary, true),
      prefix ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})" : "", unknown,
      VocabJson(vocabulary), MergesFromScoresJson(vocabulary));
}

}  // namespace

Result<GgufVocabulary> ReadGgufVocabulary(const GgufFile& file) {
  GgufVocabulary vocabulary;
  TARE_TRY(vocabulary.model, file.String("tokenizer.ggml.model"));
  TARE_TRY(vocabulary.pre, file.StringOr("tokenizer.ggml.pre", "default"));
  TARE_TRY(vocabulary.tokens, file.Strings("tokenizer.ggml.tokens"));
  const std::size_t size = vocabulary.tokens.size();

  vocabulary.types.assign(size, GgufTokenType::kNormal);
  if (file.Has("tokenizer.ggml.token_type")) {
    TARE_TRY(const auto types, file.Ints("tokenizer.ggml.token_type"));
    if (types.size() != size) {
      return Fail(ErrorKind::kCorrupt, "'{}': {} tokens, but {} in tokenizer.ggml.token_type",
                  file.name(), size, types.size());
    }
    for (std::size_t id = 0; id < size; ++id) {
      vocabulary.types[id] = static_cast<GgufTokenType>(types[id]);
    }
  }
  if (file.Has("tokenizer.ggml.scores")) {
    TARE_TRY(vocabulary.scores, file.Floats("tokenizer.ggml.scores"));
  }
  if (vocabulary.model == "llama" && vocabulary.scores.size() != size) {
    return Fail(ErrorKind::kCorrupt, "'{}': {} tokens, but {} in tokenizer.ggml.scores",
                file.name(), size, vocabulary.scores.size());
  }
  if (file.Has("tokenizer.ggml.merges")) {
    TARE_TRY(vocabulary.merges, file.Strings("tokenizer.ggml.merges"));
  }
  TARE_TRY(vocabulary.add_bos, FlagKey(file, "tokenizer.ggml.add_bos_token"));
  TARE_TRY(vocabulary.add_eos, FlagKey(file, "tokenizer.ggml.add_eos_token"));
  TARE_TRY(vocabulary.add_space_prefix, FlagKey(file, "tokenizer.ggml.add_space_prefix"));
  TARE_TRY(vocabulary.bos, TokenKey(file, "tokenizer.ggml.bos_token_id", size));
  TARE_TRY(vocabulary.eos, TokenKey(file, "tokenizer.ggml.eos_token_id", size));
  TARE_TRY(vocabulary.unknown, TokenKey(file, "tokenizer.ggml.unknown_token_id", size));
  return vocabulary;
}

Result<std::string> TokenizerJson(const GgufVocabulary& vocabulary) {
  if (vocabulary.model == "gpt2") return ByteLevelJson(vocabulary);
  if (vocabulary.model == "llama") return SentencePieceJson(vocabulary);
  return Fail(ErrorKind::kUnsupported,
              "unknown tokenizer kind '{}' (tokenizer.ggml.model); known are: gpt2, llama",
              vocabulary.model);
}

}  // namespace tare::model
