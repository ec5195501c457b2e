// The catalogue against the files it was read from, where they lie beside the project: device
// limits (perf/hardware of the measured data) and the models' config.json.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/text.h"
#include "econ/catalog.h"
#include "econ/measured_data.h"

namespace tare::econ {
namespace {

// "  mem_bw: 3350000000000 # 3350GB/s" -> {"mem_bw", 3.35e12}; enough for those files.
std::map<std::string, double> NumbersOf(const std::filesystem::path& file) {
  std::map<std::string, double> numbers;
  const Result<std::string> text = ReadFile(file);
  if (!text) return numbers;
  for (std::string_view line : Split(*text, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string value(line.substr(colon + 1));
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (end != value.c_str()) numbers[std::string(Trim(line.substr(0, colon)))] = number;
  }
  return numbers;
}

TEST(CatalogSource, DeviceFiguresAreTheOnesOfTheirSource) {
  const std::filesystem::path folder = MeasuredDataDir(TARE_SOURCE_DIR) / "hardware";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no device files at " << folder;
  const std::map<std::string, std::pair<const char*, double DeviceFacts::*>> keys = {
      {"memory", {"mem_capacity", &DeviceFacts::memory_bytes}},
      {"bandwidth", {"mem_bw", &DeviceFacts::bandwidth_bytes_per_second}},
      {"bf16", {"bfloat16_tc_flops", &DeviceFacts::bf16_flop_per_second}},
      {"fp8", {"fp8_tc_flops", &DeviceFacts::fp8_flop_per_second}},
      {"int8", {"int8_tc_flops", &DeviceFacts::int8_op_per_second}},
      {"fp4", {"fp4_tc_flops", &DeviceFacts::fp4_flop_per_second}},
      {"link", {"intra_node_bw", &DeviceFacts::link_bytes_per_second}},
      {"pcie", {"pcie_bw", &DeviceFacts::pcie_bytes_per_second}},
      {"load_power", {"power", &DeviceFacts::load_watts}}};
  const std::string_view prefix = "aiconfigurator, systems/";
  int compared = 0;
  const Catalog catalog = *Catalog::BuiltIn();
  for (const DeviceFacts& device : catalog.devices()) {
    for (const Provenance& figure : device.provenance) {
      if (figure.source.compare(0, prefix.size(), prefix) != 0) continue;
      const auto numbers = NumbersOf(folder / figure.source.substr(prefix.size()));
      const auto key = keys.find(figure.figure);
      ASSERT_NE(key, keys.end()) << figure.figure;
      const auto found = numbers.find(key->second.first);
      ASSERT_NE(found, numbers.end()) << device.name << " " << figure.figure;
      EXPECT_NEAR(device.*key->second.second / found->second, 1, 1e-6)
          << device.name << " " << figure.figure;
      EXPECT_FALSE(figure.unverified);
      ++compared;
    }
  }
  EXPECT_GT(compared, 80);
}

TEST(CatalogSource, ModelShapesAreTheOnesOfTheirConfig) {
  const std::filesystem::path folder =
      MeasuredDataDir(TARE_SOURCE_DIR).parent_path() / "model-configs";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no model configs at " << folder;
  const std::map<std::string, std::string> files = {{"deepseek-v3", "DeepSeek-V3"},
                                                    {"kimi-k2", "Kimi-K2-Instruct"},
                                                    {"llama-3-70b", "Llama-3.1-70B"},
                                                    {"llama-3-8b", "Llama-3.1-8B"},
                                                    {"qwen3-0.6b", "Qwen3-0.6B"},
                                                    {"qwen3-235b-a22b", "Qwen3-235B-A22B"},
                                                    {"qwen3-30b-a3b", "Qwen3-30B-A3B"},
                                                    {"qwen3-32b", "Qwen3-32B"},
                                                    {"qwen3-8b", "Qwen3-8B"}};
  for (const auto& [name, file] : files) {
    const Result<std::string> text = ReadFile(folder / (file + ".json"));
    ASSERT_TRUE(text.has_value()) << file;
    const nlohmann::json config = nlohmann::json::parse(*text, nullptr, false);
    ASSERT_TRUE(config.is_object()) << file;
    const ModelFacts m = *Catalog::BuiltIn()->FindModel(name);
    EXPECT_FALSE(m.unverified) << name;
    const auto expect = [&](const char* key, int value) {
      if (config.contains(key) && config[key].is_number()) {
        EXPECT_EQ(config[key].get<int>(), value) << name << " " << key;
      }
    };
    expect("num_hidden_layers", m.layers);
    expect("hidden_size", m.hidden);
    expect("num_attention_heads", m.heads);
    if (!m.mla()) expect("num_key_value_heads", m.kv_heads);
    expect(m.mla() ? "qk_nope_head_dim" : "head_dim", m.head_dim);
    expect("intermediate_size", m.intermediate);
    expect("vocab_size", m.vocabulary);
    expect("max_position_embeddings", m.context_tokens);
    expect("kv_lora_rank", m.kv_rank);
    expect("q_lora_rank", m.query_rank);
    expect("qk_rope_head_dim", m.rope_dim);
    expect("v_head_dim", m.value_dim);
    expect("n_routed_experts", m.experts);
    expect("num_experts", m.experts);
    expect("num_experts_per_tok", m.experts_per_token);
    expect("n_shared_experts", m.shared_experts);
    expect("moe_intermediate_size", m.expert_intermediate);
    expect("first_k_dense_replace", m.dense_layers);
  }
}

}  // namespace
}  // namespace tare::econ
