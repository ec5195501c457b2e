#include "model/parameter_count.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/config_json.h"

namespace tare::model {
namespace {

using nlohmann::json;

json Dense(const char* type, int layers, int hidden, int heads, int kv_heads, int inner,
           int vocab) {
  return {{"model_type", type},           {"num_hidden_layers", layers},
          {"hidden_size", hidden},        {"num_attention_heads", heads},
          {"intermediate_size", inner},   {"num_key_value_heads", kv_heads},
          {"vocab_size", vocab},          {"max_position_embeddings", 4096},
          {"tie_word_embeddings", false}, {"rms_norm_eps", 1e-6}};
}

json With(json base, const json& more) {
  base.update(more);
  return base;
}

json DeepSeek(const char* type, int layers, int hidden, int heads, int inner, int vocab,
              const json& more) {
  const json common = {{"kv_lora_rank", 512},     {"q_lora_rank", 1536},
                       {"qk_nope_head_dim", 128}, {"qk_rope_head_dim", 64},
                       {"v_head_dim", 128},       {"first_k_dense_replace", 1}};
  return With(With(Dense(type, layers, hidden, heads, heads, inner, vocab), common), more);
}

json Experts(int count, int chosen, int shared, int inner) {
  return {{"n_routed_experts", count},
          {"num_experts_per_tok", chosen},
          {"n_shared_experts", shared},
          {"moe_intermediate_size", inner}};
}

struct Published {
  const char* name;
  json config;
  double total;   // 10^9 weights
  double active;  // without the embedding table
  double active_with_embedding;
  std::uint64_t kv_bytes;  // per token, 16 bit
};

// Facts of the published config.json files; sizes as published and recomputed independently.
std::vector<Published> Models() {
  const json sigmoid = {{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}};
  return {
      {"DeepSeek-V2-Lite",
       With(DeepSeek("deepseek_v2", 27, 2048, 16, 10944, 102400, Experts(64, 6, 2, 1408)),
            {{"q_lora_rank", nullptr}}),
       15.706, 2.451, 2.661, 31104},
      {"DeepSeek-V2",
       DeepSeek("deepseek_v2", 60, 5120, 128, 12288, 102400, Experts(160, 6, 2, 1536)), 235.741,
       20.852, 21.376, 69120},
      {"DeepSeek-V3",
       With(With(DeepSeek("deepseek_v3", 61, 7168, 128, 18432, 129280, Experts(256, 8, 1, 2048)),
                 sigmoid),
            {{"first_k_dense_replace", 3}}),
       671.026, 36.626, 37.552, 70272},
      {"Kimi-K2",
       With(DeepSeek("kimi_k2", 61, 7168, 64, 18432, 163840, Experts(384, 8, 1, 2048)), sigmoid),
       1026.41, 31.687, 32.862, 70272},
      {"Llama-3-70B", Dense("llama", 80, 8192, 64, 8, 28672, 128256), 70.554, 69.503, 70.554,
       327680},
      {"Llama-3.1-8B", Dense("llama", 32, 4096, 32, 8, 14336, 128256), 8.030, 7.505, 8.030, 131072},
      {"Qwen2-72B", Dense("qwen2", 80, 8192, 64, 8, 29568, 152064), 72.706, 71.460, 72.706, 327680},
      {"Qwen2-7B", Dense("qwen2", 28, 3584, 28, 4, 18944, 152064), 7.616, 7.071, 7.616, 57344},
      {"Qwen3-0.6B",
       With(Dense("qwen3", 28, 1024, 16, 8, 3072, 151936),
            {{"head_dim", 128}, {"tie_word_embeddings", true}}),
       0.596, 0.596, 0.596, 114688},
      {"Qwen3-30B-A3B",
       With(Dense("qwen3_moe", 48, 2048, 32, 4, 6144, 151936), {{"head_dim", 128},
                                                                {"num_experts", 128},
                                                                {"num_experts_per_tok", 8},
                                                                {"moe_intermediate_size", 768}}),
       30.532, 3.042, 3.353, 98304},
      {"Qwen3-235B-A22B",
       With(Dense("qwen3_moe", 94, 4096, 64, 4, 12288, 151936), {{"head_dim", 128},
                                                                 {"num_experts", 128},
                                                                 {"num_experts_per_tok", 8},
                                                                 {"moe_intermediate_size", 1536}}),
       235.094, 21.568, 22.191, 192512},
  };
}

TEST(ParameterCountTest, ReproducesPublishedSizes) {
  for (const Published& m : Models()) {
    const auto read = ParseJsonConfig(m.config.dump(), m.name);
    ASSERT_TRUE(read) << read.error().message;
    const ParameterCount n = CountParameters(read->config);
    EXPECT_NEAR(static_cast<double>(n.total()) / 1e9 / m.total, 1.0, 1e-3) << m.name;
    EXPECT_NEAR(static_cast<double>(n.active()) / 1e9 / m.active, 1.0, 1e-3) << m.name;
    EXPECT_NEAR(static_cast<double>(n.active_with_embedding()) / 1e9 / m.active_with_embedding, 1.0,
                1e-3)
        << m.name;
    EXPECT_EQ(2 * KvNumbersPerToken(read->config), m.kv_bytes) << m.name;
  }
}

// The published files themselves, where they are at hand.
TEST(ParameterCountTest, ReadsPublishedConfigs) {
  const std::filesystem::path dir = TARE_SOURCE_DIR "/../shared/data/model-configs";
  if (!std::filesystem::exists(dir)) GTEST_SKIP() << "no published config.json files at " << dir;
  const std::pair<const char*, double> totals[] = {
      {"DeepSeek-V3", 671.026},  {"Kimi-K2-Instruct", 1026.41}, {"Llama-3.1-70B", 70.554},
      {"Llama-3.1-8B", 8.030},   {"Qwen3-0.6B", 0.596},         {"Qwen3-235B-A22B", 235.094},
      {"Qwen3-30B-A3B", 30.532}, {"Qwen3-32B", 32.762},         {"Qwen3-8B", 8.191}};
  for (const auto& [name, total] : totals) {
    const auto read = ReadJsonConfig(dir / (std::string(name) + ".json"));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_NEAR(static_cast<double>(read->config.parameters) / 1e9 / total, 1.0, 1e-3) << name;
  }
  for (const char* name : {"DeepSeek-V3.2", "gpt-oss-20b"}) {
    const auto read = ReadJsonConfig(dir / (std::string(name) + ".json"));
    ASSERT_FALSE(read) << name;
    EXPECT_EQ(read.error().kind, ErrorKind::kUnsupported);
    EXPECT_THAT(read.error().message, testing::HasSubstr("model_type '"));
  }
}

// The largest tables that are let in add up to more than an int holds.
TEST(ParameterCountTest, HugeTablesOfEncodersAreCounted) {
  const json config = With(Dense("bert", 1, 64, 4, 4, 96, 1 << 24),
                           {{"max_position_embeddings", 1 << 30}, {"type_vocab_size", 1 << 16}});
  const auto read = ParseJsonConfig(config.dump(), "config.json");
  ASSERT_TRUE(read) << read.error().message;
  ParameterCount n = CountParameters(read->config);
  EXPECT_EQ(n.tables, ((1ull << 24) + (1ull << 30) + (1ull << 16)) * 64);
  // Whoever counts need not have checked before.
  ModelConfig unchecked = read->config;
  unchecked.encoder->token_types = unchecked.intermediate = std::numeric_limits<int>::max();
  n = CountParameters(unchecked);
  EXPECT_EQ(n.tables, ((1ull << 24) + (1ull << 30) + (1ull << 31) - 1) * 64);
  EXPECT_EQ(n.dense_mlp, (2ull * 64 + 1) * ((1ull << 31) - 1) + 64);
}

TEST(JsonConfigTest, NamesWhatIsWrong) {
  const auto error = [](const char* key, const json& value) {
    json config = Dense("llama", 2, 64, 4, 2, 96, 160);
    config[key] = value;
    const auto read = ParseJsonConfig(config.dump(), "config.json");
    return read ? "no error" : read.error().message;
  };
  using testing::HasSubstr;
  EXPECT_THAT(error("num_hidden_layers", "two"),
              HasSubstr("config.json: key 'num_hidden_layers' is string, an integer is needed"));
  EXPECT_THAT(error("num_hidden_layers", -1), HasSubstr("which no model has"));
  EXPECT_THAT(error("num_hidden_layers", nullptr), HasSubstr("is missing"));
  EXPECT_THAT(error("hidden_act", "gelu"), HasSubstr("hidden_act 'gelu'"));
  EXPECT_THAT(error("model_type", "mamba"), HasSubstr("model_type 'mamba' is not supported"));
  EXPECT_THAT(error("rope_scaling", json::object({{"rope_type", "longrope"}})),
              HasSubstr("'longrope'"));
  EXPECT_THAT(error("rope_scaling", 3), HasSubstr("'rope_scaling' is number"));
  EXPECT_THAT(error("attention_bias", true), HasSubstr("attention_bias"));
  EXPECT_EQ(error("unknown_key", 1), "no error");
  EXPECT_FALSE(ParseJsonConfig("[1, 2", "config.json"));
  EXPECT_FALSE(ParseJsonConfig("{}", "config.json"));
}

}  // namespace
}  // namespace tare::model
