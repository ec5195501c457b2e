// The names of decoders' tensors: llama's, with the parts that later families added.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/text.h"
#include "model/file_names.h"

namespace tare::model {
namespace {

// Common name and Hugging Face name of what every layer may have.
constexpr std::pair<std::string_view, std::string_view> kLayerParts[] = {
    {"attn_norm", "input_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};
// "blk.3.ffn_gate.17.weight" is "model.layers.3.mlp.experts.17.gate_proj.weight".
constexpr std::pair<std::string_view, std::string_view> kExpertParts[] = {
    {"ffn_gate", "gate_proj"}, {"ffn_up", "up_proj"}, {"ffn_down", "down_proj"}};
constexpr std::string_view kExperts = "mlp.experts.";
// The one whose last words differ, too.
constexpr std::string_view kChoiceBias = "exp_probs_b.bias";
constexpr std::string_view kHfChoiceBias = "mlp.gate.e_score_correction_bias";
constexpr std::pair<std::string_view, std::string_view> kWholeParts[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};

std::string Join(std::string_view part, std::string_view suffix) {
  return std::string(part) + "." + std::string(suffix);
}

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; the name itself when there is
// no translation.
std::string ToHuggingFace(std::string_view name) {
  const std::vector<std::string_view> words = Split(name, '.');
  if (words.size() == 2) {
    for (const auto& [common, hf] : kWholeParts) {
      if (words[0] == common) return Join(hf, words[1]);
    }
  }
  if (words.size() == 4 && words[0] == "blk") {
    if (name.ends_with(kChoiceBias))
      return fmt::format("model.layers.{}.{}", words[1], kHfChoiceBias);
    for (const auto& [common, hf] : kLayerParts) {
      if (words[2] == common) return fmt::format("model.layers.{}.{}.{}", words[1], hf, words[3]);
    }
  }
  if (words.size() == 5 && words[0] == "blk") {
    for (const auto& [common, hf] : kExpertParts) {
      if (words[2] != common) continue;
      return fmt::format("model.layers.{}.{}{}.{}.{}", words[1], kExperts, words[3], hf, words[4]);
    }
  }
  return std::string(name);
}

// The reverse.
std::string ToCommon(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::string(name);
  const std::string_view part = name.substr(0, dot);
  const std::string_view suffix = name.substr(dot + 1);
  for (const auto& [common, hf] : kWholeParts) {
    if (part == hf) return Join(common, suffix);
  }
  constexpr std::string_view kLayers = "model.layers.";
  if (!part.starts_with(kLayers)) return std::string(name);
  const std::string_view rest = part.substr(kLayers.size());
  const std::size_t after = rest.find('.');
  if (after == std::string_view::npos) return std::string(name);
  const std::string_view layer = rest.substr(0, after);
  const std::string_view in_layer = rest.substr(after + 1);
  if (name.ends_with(kHfChoiceBias)) return fmt::format("blk.{}.{}", layer, kChoiceBias);
  for (const auto& [common, hf] : kLayerParts) {
    if (in_layer == hf) return fmt::format("blk.{}.{}.{}", layer, common, suffix);
  }
  if (in_layer.starts_with(kExperts)) {
    const std::vector<std::string_view> words = Split(in_layer.substr(kExperts.size()), '.');
    for (const auto& [common, hf] : kExpertParts) {
      if (words.size() != 2 || words[1] != hf) continue;
      return fmt::format("blk.{}.{}.{}.{}", layer, common, words[0], suffix);
    }
  }
  return std::string(name);
}

// Old files carry rotary tables that follow from the config; a tied head may be stored twice;
// layers past the last one predict tokens further on (DeepSeek's MTP) and are not part of the
// model.
bool NoUseFor(std::string_view name, const ModelConfig& config) {
  for (int i = 0; i < config.prediction_layers; ++i) {
    if (name.starts_with(fmt::format("model.layers.{}.", config.layers + i))) return true;
  }
  return name.ends_with(".rotary_emb.inv_freq") ||
         (config.tied_embeddings && name == "lm_head.weight");
}

}  // namespace

const FileNames kDecoderNames = {ToCommon, ToHuggingFace, NoUseFor};

}  // namespace tare::model
