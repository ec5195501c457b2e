// Encoders against the embeddings another program computed for them.
#include "model/encoder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>

#include "base/test_model.h"
#include "model/config_json.h"
#include "model/inspect.h"
#include "model/text.h"
#include "model/tiny_encoder.h"

namespace tare::model {
namespace {

namespace fs = std::filesystem;

class EncoderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tare-encoder-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<std::unique_ptr<Encoder>> Load(std::optional<kernels::WeightType> dtype = {},
                                        const fs::path& from = {}) {
    const fs::path& folder = from.empty() ? folder_ : from;
    TARE_TRY(const auto checkpoint, OpenCheckpoint(folder));
    TARE_TRY(const SentenceConfig sentence, ReadSentenceConfig(folder, checkpoint->config()));
    LoadOptions options;
    options.pool = &pool_;
    options.dtype = dtype;
    return LoadEncoder(*checkpoint, sentence, options);
  }

  // One vector for each case's tokens, all computed in one step.
  static std::vector<float> Together(Encoder& encoder,
                                     const std::vector<TinyEncoder::Case>& cases) {
    std::vector<TokenId> tokens;
    std::vector<int> lengths;
    for (const auto& one : cases) {
      tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
      lengths.push_back(static_cast<int>(one.tokens.size()));
    }
    std::vector<float> out(cases.size() * static_cast<std::size_t>(encoder.dimension()));
    encoder.Forward(tokens, lengths, out);
    return out;
  }

  void Overwrite(const fs::path& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(folder_ / name, text));
  }

  fs::path folder_;
  ThreadPool pool_{2};
};

TEST_F(EncoderTest, EveryTinyModelAgreesWithTransformersAndItsBitsDoNotDependOnTheBatch) {
  const auto encoders = ReadTinyEncoders();
  ASSERT_EQ(encoders.size(), 3u);
  for (const TinyEncoder& tiny : encoders) {
    SCOPED_TRACE(tiny.name);
    fs::remove_all(folder_);
    WriteTinyEncoder(tiny, folder_);
    const auto encoder = Load();
    ASSERT_TRUE(encoder) << encoder.error().message;
    EXPECT_EQ((*encoder)->weight_type(), kernels::WeightType::kF32);
    EXPECT_EQ((*encoder)->sentence().normalise, tiny.normalise);
    const auto size = static_cast<std::size_t>((*encoder)->dimension());
    const std::vector<float> together = Together(**encoder, tiny.cases);
    for (std::size_t i = 0; i < tiny.cases.size(); ++i) {
      const std::vector<float> alone = Together(**encoder, {tiny.cases[i]});
      const std::span<const float> in_batch(together.data() + i * size, size);
      EXPECT_LE(MaxDifference(in_batch, tiny.cases[i].embedding), 2e-5f) << i;
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), in_batch.begin())) << i;
    }
  }
}

TEST_F(EncoderTest, Bf16StaysClose) {
  const TinyEncoder tiny = ReadTinyEncoders().front();
  WriteTinyEncoder(tiny, folder_);
  const auto encoder = Load(kernels::WeightType::kBf16);
  ASSERT_TRUE(encoder) << encoder.error().message;
  for (const auto& one : tiny.cases) {
    EXPECT_GE(Cosine(Together(**encoder, {one}), one.embedding), 0.999);
  }
}

TEST_F(EncoderTest, CheckpointsSavedWithAHeadLoadTheSame) {
  TinyEncoder tiny = ReadTinyEncoders().front();
  WriteTinyEncoder(tiny, folder_);
  // Weights come from names, so the names must be those of the golden model: rename in place.
  std::string bytes = *ReadFile(folder_ / "model.safetensors");
  const auto plain = Load();
  ASSERT_TRUE(plain) << plain.error().message;
  const std::vector<float> expected = Together(**plain, tiny.cases);
  std::uint64_t head = 0;
  std::memcpy(&head, bytes.data(), sizeof head);
  auto header = nlohmann::json::parse(bytes.substr(8, head));
  nlohmann::json renamed = nlohmann::json::object();
  for (const auto& [name, entry] : header.items()) {
    std::string other = name == "__metadata__" ? name : "bert." + name;
    if (other.ends_with("LayerNorm.weight")) other.replace(other.size() - 6, 6, "gamma");
    if (other.ends_with("LayerNorm.bias")) other.replace(other.size() - 4, 4, "beta");
    renamed[other] = entry;
  }
  std::string text = renamed.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = text.size();
  std::string file(reinterpret_cast<const char*>(&size), sizeof size);
  Overwrite("model.safetensors", file + text + bytes.substr(8 + head));
  const auto prefixed = Load();
  ASSERT_TRUE(prefixed) << prefixed.error().message;
  EXPECT_EQ(Together(**prefixed, tiny.cases), expected);
}

TEST_F(EncoderTest, AMissingTensorIsNamedAsTheFolderHasIt) {
  TinyEncoder tiny = ReadTinyEncoders().front();
  tiny.tensors.erase("encoder.layer.1.output.dense.bias");
  WriteTinyEncoder(tiny, folder_);
  const auto encoder = Load();
  ASSERT_FALSE(encoder);
  EXPECT_NE(encoder.error().message.find("'encoder.layer.1.output.dense.bias' is missing"),
            std::string::npos)
      << encoder.error().message;
}

TEST_F(EncoderTest, WhatCannotBeComputedIsRefusedByName) {
  const TinyEncoder tiny = ReadTinyEncoders().front();
  WriteTinyEncoder(tiny, folder_);
  const auto refused = [&](const char* word) {
    const auto encoder = Load();
    ASSERT_FALSE(encoder) << word;
    EXPECT_NE(encoder.error().message.find(word), std::string::npos) << encoder.error().message;
  };
  Overwrite("1_Pooling/config.json", R"({"pooling_mode_max_tokens":true})");
  refused("'max_tokens'");
  Overwrite("1_Pooling/config.json", R"({"pooling_mode":"lasttoken"})");
  refused("'lasttoken'");
  Overwrite("1_Pooling/config.json", R"({"pooling_mode":"mean"})");
  EXPECT_TRUE(Load());
  Overwrite("modules.json", R"([{"type":"sentence_transformers.models.Dense","path":"2_Dense"}])");
  refused("models.Dense");
  Overwrite("modules.json", R"([{"type":"a.Pooling","path":"../../etc"}])");
  refused("leads out");
  Overwrite("modules.json", "[");
  refused("not JSON");
  fs::remove(folder_ / "modules.json");
  EXPECT_TRUE(Load());
  auto config = tiny.config;
  config["hidden_act"] = "gelu_new";
  Overwrite("config.json", config.dump());
  refused("'gelu_new'");
  config = tiny.config;
  config["position_embedding_type"] = "relative_key";
  Overwrite("config.json", config.dump());
  refused("'relative_key'");
  config = tiny.config;
  config["num_attention_heads"] = 5;
  Overwrite("config.json", config.dump());
  refused("5 heads");
  for (const auto& [key, value] :
       {std::pair("head_dim", 4096), std::pair("head_dim", 1),
        std::pair("num_key_value_heads", 4096), std::pair("num_key_value_heads", 1)}) {
    config = tiny.config;
    config[key] = value;
    Overwrite("config.json", config.dump());
    refused(fmt::format("{} {}", key, value).c_str());
  }
  config = tiny.config;
  config["type_vocab_size"] = 1 << 17;
  Overwrite("config.json", config.dump());
  refused("token types is 131072");
}

TEST_F(EncoderTest, TheLengthIsTheShortestOfWhatTheFolderSays) {
  const TinyEncoder tiny = ReadTinyEncoders().front();
  WriteTinyEncoder(tiny, folder_, "", 24);
  auto encoder = Load();
  ASSERT_TRUE(encoder) << encoder.error().message;
  EXPECT_EQ((*encoder)->sentence().max_length, 24);
  Overwrite("sentence_bert_config.json", R"({"max_seq_length":1000})");
  encoder = Load();
  EXPECT_EQ((*encoder)->sentence().max_length, 64);
}

TEST_F(EncoderTest, IsNoLanguageModelAndSaysSo) {
  WriteTinyEncoder(ReadTinyEncoders().front(), folder_);
  const auto checkpoint = OpenCheckpoint(folder_);
  ASSERT_TRUE(checkpoint);
  EXPECT_TRUE(IsEncoder(**checkpoint));
  LoadOptions options;
  options.pool = &pool_;
  const auto model = LoadModel(**checkpoint, options);
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("/v1/embeddings"), std::string::npos);
}

TEST_F(EncoderTest, ReadsAVocabularyWithoutTokenizerJson) {
  WriteTinyEncoder(ReadTinyEncoders().front(), folder_);
  const auto text = LoadText(folder_);
  ASSERT_TRUE(text) << text.error().message;
  const auto ids = (*text)->tokenizer().Encode("Cab É?");
  ASSERT_TRUE(ids);
  // [CLS] c ##a ##b e [UNK] [SEP]: lower case, accents off, punctuation apart.
  std::vector<int> numbers;
  for (const TokenId id : *ids) numbers.push_back(ToInt(id));
  EXPECT_EQ(numbers, (std::vector<int>{2, 7, 31, 32, 9, 1, 3}));
}

TEST_F(EncoderTest, InspectionCountsItsWeightsAndNoKvCache) {
  const auto config = ParseJsonConfig(
      R"({"model_type":"bert","hidden_size":384,"intermediate_size":1536,"num_hidden_layers":6,
          "num_attention_heads":12,"vocab_size":30522,"max_position_embeddings":512,
          "type_vocab_size":2,"layer_norm_eps":1e-12,"hidden_act":"gelu"})",
      "config.json");
  ASSERT_TRUE(config) << config.error().message;
  const Inspection found = Inspect(config->config, std::uint64_t{1} << 30);
  // The published 22,713,216 are these and the pooler's 384 x 384 + 384.
  EXPECT_EQ(found.parameters.total(), 22713216u - 384 * 384 - 384);
  EXPECT_EQ(found.parameters.active(), found.parameters.total() - (30522 + 512 + 2) * 384);
  EXPECT_EQ(found.kv_bytes_per_token, 0u);
  EXPECT_TRUE(found.capacities.empty());
}

TEST_F(EncoderTest, TheRealMiniLmAgreesWithTransformers) {
  const auto model = FindTestEmbeddingModel();
  if (!model) GTEST_SKIP() << kTestEmbeddingModelMissing;
  const auto encoder = Load({}, *model);
  const auto text = LoadText(*model);
  ASSERT_TRUE(encoder) << encoder.error().message;
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ((*encoder)->sentence().max_length, 256);
  const auto golden = nlohmann::json::parse(*ReadFile(TARE_SOURCE_DIR "/tests/golden/minilm.json"));
  double least = 1.0;
  float most = 0.0f;
  for (const auto& one : golden["cases"]) {
    auto ids = *(*text)->tokenizer().Encode(one["text"].get<std::string>());
    std::vector<TokenId> expected_ids;
    for (const int id : one["tokens"]) expected_ids.push_back(TokenId{id});
    if (ids.size() > 256) {
      ids.erase(ids.begin() + 255, ids.end() - 1);
    }
    EXPECT_EQ(ids, expected_ids) << one["text"];
    const std::vector<float> expected = one["embedding"];
    const std::vector<float> vector = Together(**encoder, {{ids, {}}});
    least = std::min(least, Cosine(vector, expected));
    most = std::max(most, MaxDifference(vector, expected));
  }
  EXPECT_GE(least, 0.9999);
  EXPECT_LE(most, 2e-5f);
  RecordProperty("least_cosine", std::to_string(least));
}

}  // namespace
}  // namespace tare::model
