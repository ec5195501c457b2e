// Test helper: tiny random BERT encoders as sentence-transformers folders, with the embeddings the
// transformers library computed for them (tests/golden/tiny_encoders.py).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/types.h"
#include "model/safetensors_writer.h"
#include "model/tiny_checkpoint.h"
#include "source_dir.h"

namespace tare::model {

struct TinyEncoder {
  struct Case {
    std::vector<TokenId> tokens;
    std::vector<float> embedding;
  };
  std::string name;
  nlohmann::json config;
  std::string pooling;  // "mean", "cls"
  bool normalise = false;
  std::map<std::string, std::vector<std::int64_t>> tensors;
  std::vector<Case> cases;
};

inline std::vector<TinyEncoder> ReadTinyEncoders() {
  const auto text = ReadFile(TARE_SOURCE_DIR "/tests/golden/tiny_encoders.json");
  if (!text) return {};
  std::vector<TinyEncoder> encoders;
  const auto document = nlohmann::json::parse(*text);
  for (const auto& m : document["models"]) {
    TinyEncoder encoder{m["name"], m["config"], m["pooling"], m["normalise"], m["tensors"], {}};
    for (const auto& c : m["cases"]) {
      TinyEncoder::Case one{{}, c["embedding"]};
      for (const int id : c["tokens"]) one.tokens.push_back(TokenId{id});
      encoder.cases.push_back(std::move(one));
    }
    encoders.push_back(std::move(encoder));
  }
  return encoders;
}

// Its vocabulary: special tokens as BERT has them in front, letters that begin a word and letters
// that go on with one, and the rest unused.
inline std::string TinyVocabulary(int size) {
  std::string lines = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  int count = 5;
  for (char c = 'a'; c <= 'z' && count < size; ++c, ++count) lines += std::string(1, c) + "\n";
  for (char c = 'a'; c <= 'z' && count < size; ++c, ++count) {
    lines += "##" + std::string(1, c) + "\n";
  }
  for (; count < size; ++count) lines += "[unused" + std::to_string(count) + "]\n";
  return lines;
}

// Writes the folder; `prefix` goes before every tensor's name, `max_length` 0 writes no limit.
inline void WriteTinyEncoder(const TinyEncoder& encoder, const std::filesystem::path& folder,
                             const std::string& prefix = "", int max_length = 0) {
  using nlohmann::json;
  const auto write = [&](const std::filesystem::path& name, const std::string& text) {
    std::filesystem::create_directories((folder / name).parent_path());
    ASSERT_TRUE(WriteFileAtomic(folder / name, text));
  };
  write("config.json", encoder.config.dump());
  json modules =
      json::array({{{"type", "sentence_transformers.models.Transformer"}, {"path", ""}},
                   {{"type", "sentence_transformers.models.Pooling"}, {"path", "1_Pooling"}}});
  if (encoder.normalise) {
    modules.push_back({{"type", "sentence_transformers.models.Normalize"}, {"path", "2"}});
  }
  write("modules.json", modules.dump());
  write("1_Pooling/config.json", json{{"pooling_mode_cls_token", encoder.pooling == "cls"},
                                      {"pooling_mode_mean_tokens", encoder.pooling == "mean"}}
                                     .dump());
  if (max_length > 0) {
    write("sentence_bert_config.json", json{{"max_seq_length", max_length}}.dump());
  }
  write("vocab.txt", TinyVocabulary(encoder.config["vocab_size"]));
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, shape] : encoder.tensors)
    entries.push_back({prefix + name, "F32", shape});
  auto writer = SafetensorsWriter::Create(folder / "model.safetensors", entries);
  ASSERT_TRUE(writer) << writer.error().message;
  for (const auto& [name, shape] : encoder.tensors) {
    const std::vector<float> values = TinyWeights(name, shape);
    ASSERT_TRUE(writer->Add(std::as_bytes(std::span(values))));
  }
  ASSERT_TRUE(writer->Commit());
}

inline double Cosine(std::span<const float> a, std::span<const float> b) {
  double dot = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    dot += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  return dot / std::sqrt(aa * bb);
}

}  // namespace tare::model
