// Test helper: tiny models whose weights come from their tensors' names, as in
// tests/golden/tiny_models.py, with the logits the transformers library computed for them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "kernels/kv_pages.h"
#include "model/gguf_writer.h"
#include "model/language_model.h"
#include "source_dir.h"

namespace tare::model {

struct TinyCase {
  std::vector<TokenId> tokens;
  std::vector<int> positions;              // whose logits are known
  std::vector<std::vector<float>> logits;  // [positions][vocab]
};

struct TinyModel {
  std::string name;
  nlohmann::json config;                                     // as config.json
  std::map<std::string, std::vector<std::int64_t>> tensors;  // Hugging Face names, [rows, cols]
  std::vector<TinyCase> cases;
};

inline std::vector<TinyModel> ReadTinyModels() {
  const auto text = ReadFile(TARE_SOURCE_DIR "/tests/golden/tiny_models.json");
  if (!text) return {};
  const auto document = nlohmann::json::parse(*text);
  std::vector<TinyModel> models;
  for (const auto& m : document["models"]) {
    TinyModel model{m["name"], m["config"], m["tensors"], {}};
    for (const auto& c : m["cases"]) {
      TinyCase one{{}, c["positions"], c["logits"]};
      for (const int id : c["tokens"]) one.tokens.push_back(TokenId{id});
      model.cases.push_back(std::move(one));
    }
    models.push_back(std::move(model));
  }
  return models;
}

inline std::vector<float> TinyWeights(std::string_view name, std::span<const std::int64_t> shape) {
  std::uint64_t seed = 0xCBF29CE484222325u;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  std::int64_t size = 1;
  for (const std::int64_t d : shape) size *= d;
  const bool vector = shape.size() == 1;
  const float scale = vector ? 0.25f
                             : std::exp2(static_cast<float>(std::lround(
                                   std::log2(1.9 / std::sqrt(static_cast<double>(shape.back()))))));
  const float offset = vector && !name.ends_with("bias") ? 1.0f : 0.0f;
  std::vector<float> values;
  for (std::int64_t i = 0; i < size; ++i) {
    std::uint64_t z = seed + static_cast<std::uint64_t>(i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    const float u = static_cast<float>(z >> 40) * 0x1p-23f - 1.0f;
    values.push_back(u * scale + offset);
  }
  return values;
}

// "model.layers.1.self_attn.q_proj.weight" -> "blk.1.attn_q.weight"
inline std::string TinyGgufName(std::string name) {
  const std::pair<const char*, const char*> kParts[] = {
      {"model.layers.", "blk."},
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"self_attn.q_a_proj", "attn_q_a"},
      {"self_attn.q_a_layernorm", "attn_q_a_norm"},
      {"self_attn.q_b_proj", "attn_q_b"},
      {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
      {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
      {"self_attn.kv_b_proj", "attn_kv_b"},
      {"mlp.gate.weight", "ffn_gate_inp.weight"},
      {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
      {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
      {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
      {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
  };
  for (const auto& [from, to] : kParts) {
    const std::size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, std::string_view(from).size(), to);
  }
  return name;
}

// Rows of every head from halves to neighbouring pairs: what conversion to GGUF does for llama.
inline std::vector<float> ToNeighbours(const std::vector<float>& rows, int cols, int head_dim) {
  std::vector<float> out(rows.size());
  const int count = static_cast<int>(rows.size()) / cols;
  for (int row = 0; row < count; ++row) {
    const int in_head = row % head_dim;
    const int half = head_dim / 2;
    const int to = row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
    std::copy_n(rows.begin() + row * cols, cols, out.begin() + to * cols);
  }
  return out;
}

struct TinyTensor {
  std::vector<std::int64_t> shape;  // slowest first
  std::vector<float> values;
};

// What conversion to GGUF does to experts: one tensor for all of a layer.
// "...mlp.experts.3.up_proj" comes after expert 2 and is put behind it; false for other names.
inline bool StackExpert(const std::string& name, const std::vector<std::int64_t>& shape,
                        const std::vector<float>& values,
                        std::map<std::string, TinyTensor>& stacked) {
  constexpr std::string_view kExperts = "mlp.experts.";
  const std::size_t at = name.find(kExperts);
  if (at == std::string::npos) return false;
  const std::size_t number = at + kExperts.size();
  const std::size_t dot = name.find('.', number);
  const std::string part = name.substr(dot + 1, name.find("_proj") - dot - 1);
  const std::string layer = name.substr(0, at).replace(0, 13, "blk.");
  const std::int64_t expert = std::stol(name.substr(number, dot - number));
  TinyTensor& tensor = stacked[layer + "ffn_" + part + "_exps.weight"];
  if (tensor.shape.empty()) tensor.shape = {0, shape[0], shape[1]};
  tensor.shape[0] = std::max(tensor.shape[0], expert + 1);
  tensor.values.resize(static_cast<std::size_t>(tensor.shape[0]) * values.size());
  std::copy(values.begin(), values.end(),
            tensor.values.begin() + expert * static_cast<std::int64_t>(values.size()));
  return true;
}

// And to kv_b: the keys' part transposed for each head, the values' apart.
inline std::pair<TinyTensor, TinyTensor> SplitKvB(const std::vector<float>& values,
                                                  std::int64_t heads, std::int64_t nope,
                                                  std::int64_t value, std::int64_t rank) {
  TinyTensor keys{{heads, rank, nope}, {}}, apart{{heads, value, rank}, {}};
  for (std::int64_t h = 0; h < heads; ++h) {
    const float* head = values.data() + h * (nope + value) * rank;
    for (std::int64_t c = 0; c < rank; ++c) {
      for (std::int64_t i = 0; i < nope; ++i) keys.values.push_back(head[i * rank + c]);
    }
    apart.values.insert(apart.values.end(), head + nope * rank, head + (nope + value) * rank);
  }
  return {keys, apart};
}

// Changes to make before a tensor is written: return false to leave it out.
using TinyEdit = std::function<bool(std::string& name, std::vector<std::int64_t>& dims,
                                    std::vector<float>& values)>;

// `whole_kv_b`: as older files have it, in one piece.
inline std::string TinyGguf(const TinyModel& model, const TinyEdit& edit = {},
                            bool whole_kv_b = false) {
  const auto& c = model.config;
  const std::string type = c["model_type"];
  const bool latent = c.contains("kv_lora_rank");
  const std::string arch = latent ? "deepseek2" : type == "qwen3_moe" ? "qwen3moe" : type;
  const int heads = c["num_attention_heads"];
  const int hidden = c["hidden_size"];
  const int nope = c.value("qk_nope_head_dim", 0);
  const int rope = c.value("qk_rope_head_dim", 0);
  const int head_dim = latent ? nope + rope : c.value("head_dim", hidden / heads);
  GgufWriter writer;
  const auto count = [&](const char* key, const char* from) {
    writer.Add(arch + "." + key, c[from].get<std::uint32_t>());
  };
  writer.Add("general.architecture", std::string_view(arch));
  writer.Add("general.name", std::string_view(model.name));
  count("block_count", "num_hidden_layers");
  count("embedding_length", "hidden_size");
  count("attention.head_count", "num_attention_heads");
  count("attention.head_count_kv", "num_key_value_heads");
  count("feed_forward_length", "intermediate_size");
  count("context_length", "max_position_embeddings");
  count("vocab_size", "vocab_size");
  writer.Add(arch + ".attention.key_length", static_cast<std::uint32_t>(head_dim));
  writer.Add(arch + ".attention.value_length",
             static_cast<std::uint32_t>(c.value("v_head_dim", head_dim)));
  const auto count_if = [&](const char* key, const char* from) {
    if (c.contains(from) && !c[from].is_null()) count(key, from);
  };
  count_if("attention.q_lora_rank", "q_lora_rank");
  count_if("attention.kv_lora_rank", "kv_lora_rank");
  count_if("rope.dimension_count", "qk_rope_head_dim");
  count_if("expert_count", "n_routed_experts");
  count_if("expert_count", "num_experts");
  count_if("expert_used_count", "num_experts_per_tok");
  count_if("expert_shared_count", "n_shared_experts");
  count_if("expert_feed_forward_length", "moe_intermediate_size");
  count_if("leading_dense_block_count", "first_k_dense_replace");
  count_if("expert_group_count", "n_group");
  count_if("expert_group_used_count", "topk_group");
  if (c.contains("norm_topk_prob")) {
    writer.Add(arch + ".expert_weights_norm", c["norm_topk_prob"].get<bool>());
  }
  if (latent) {
    writer.Add(arch + ".expert_weights_scale", c["routed_scaling_factor"].get<float>());
    writer.Add(arch + ".expert_gating_func",
               static_cast<std::uint32_t>(c["scoring_func"] == "sigmoid" ? 2 : 1));
  }
  writer.Add(arch + ".attention.layer_norm_rms_epsilon", c["rms_norm_eps"].get<float>());
  writer.Add(arch + ".rope.freq_base", c["rope_theta"].get<float>());
  std::vector<float> divisors;
  if (c.contains("rope_scaling")) {
    const auto& scaling = c["rope_scaling"];
    const std::string kind = scaling["rope_type"];
    const float factor = scaling["factor"];
    if (kind == "llama3") {  // a tensor, in GGUF
      const float original = scaling["original_max_position_embeddings"];
      for (int i = 0; i < head_dim / 2; ++i) {
        const float f = std::pow(c["rope_theta"].get<float>(),
                                 -2.0f * static_cast<float>(i) / static_cast<float>(head_dim));
        const float wavelength = 6.2831853f / f;
        const float keep = std::clamp((original / wavelength - 1.0f) / (4.0f - 1.0f), 0.0f, 1.0f);
        divisors.push_back(1.0f / ((1.0f - keep) / factor + keep));
      }
    } else {
      writer.Add(arch + ".rope.scaling.type", std::string_view(kind));
      writer.Add(arch + ".rope.scaling.factor", factor);
      if (scaling.contains("beta_fast")) {
        writer.Add(arch + ".rope.scaling.yarn_beta_fast", scaling["beta_fast"].get<float>());
        writer.Add(arch + ".rope.scaling.yarn_log_multiplier",
                   0.1f * scaling["mscale_all_dim"].get<float>());
      }
      if (scaling.contains("original_max_position_embeddings")) {
        writer.Add(arch + ".rope.scaling.original_context_length",
                   scaling["original_max_position_embeddings"].get<std::uint32_t>());
      }
    }
  }
  const auto add = [&](std::string name, std::vector<std::int64_t> shape,
                       std::vector<float> values) {
    if (edit && !edit(name, shape, values)) return;
    std::reverse(shape.begin(), shape.end());
    writer.AddTensor(name, 0, shape, std::as_bytes(std::span(values)));
  };
  std::map<std::string, TinyTensor> stacked;
  for (const auto& [name, shape] : model.tensors) {
    std::vector<float> values = TinyWeights(name, shape);
    if (StackExpert(name, shape, values, stacked)) continue;
    if (name.find("kv_b_proj") != std::string::npos && !whole_kv_b) {
      const auto [keys, apart] = SplitKvB(values, heads, nope, c["v_head_dim"], c["kv_lora_rank"]);
      std::string common = TinyGgufName(name);
      add(common.replace(common.find("kv_b"), 4, "k_b"), keys.shape, keys.values);
      add(common.replace(common.find("k_b"), 3, "v_b"), apart.shape, apart.values);
      continue;
    }
    const bool rotated =
        name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos;
    if (arch == "llama" && rotated) {
      values = ToNeighbours(values, static_cast<int>(shape.size() == 2 ? shape[1] : 1), head_dim);
    }
    add(TinyGgufName(name), shape, std::move(values));
  }
  for (const auto& [name, tensor] : stacked) add(name, tensor.shape, tensor.values);
  if (!divisors.empty()) add("rope_freqs.weight", {head_dim / 2}, divisors);
  return writer.Finish();
}

// Runs `tokens` through the model in steps of at most `chunk`, keeping K and V in float; returns
// the logits of every position.
inline std::vector<std::vector<float>> RunTokens(LanguageModel& model,
                                                 std::span<const TokenId> tokens, int chunk,
                                                 kernels::KvType kv_type = kernels::KvType::kF32,
                                                 const LoraAdapter* adapter = nullptr) {
  const auto count = static_cast<int>(tokens.size());
  const int page_count = count / kernels::kTokensPerPage + 1;
  auto kv =
      kernels::KvPages::Create(model.kv_shape(kv_type), static_cast<std::uint32_t>(page_count));
  EXPECT_TRUE(kv) << kv.error().message;
  // Out of order, so that reading the wrong page shows.
  std::vector<PageId> pages;
  for (int i = page_count; i-- > 0;) pages.push_back(PageId{static_cast<std::uint32_t>(i)});
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  std::vector<std::vector<float>> all;
  for (int start = 0; start < count; start += chunk) {
    const int rows = std::min(chunk, count - start);
    const kernels::SequenceRows sequence{0, rows, start, pages};
    std::vector<int> wanted;
    for (int i = 0; i < rows; ++i) wanted.push_back(i);
    std::vector<float> logits(static_cast<std::size_t>(rows) * vocab);
    model.Forward({tokens.subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(rows)),
                   {&sequence, 1},
                   wanted,
                   {&adapter, 1}},
                  *kv, logits);
    for (int i = 0; i < rows; ++i) {
      const auto from =
          logits.begin() + static_cast<std::ptrdiff_t>(i) * static_cast<std::ptrdiff_t>(vocab);
      all.emplace_back(from, from + static_cast<std::ptrdiff_t>(vocab));
    }
  }
  return all;
}

inline float MaxDifference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0.0f;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    most = difference <= most ? most : difference;  // a NaN becomes the most
  }
  return most;
}

}  // namespace tare::model
