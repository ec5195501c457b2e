// Qwen 3, mixture of experts: attention as qwen3, and in every layer a softmax router over experts
// of which each token takes a few.
#include <nlohmann/json.hpp>

#include "model/blocks.h"
#include "model/config_gguf.h"
#include "model/config_json.h"
#include "model/families.h"

namespace tare::model {
namespace {

constexpr const char* kTypes[] = {"qwen3_moe"};

Status AdjustJson(const JsonKeys& keys, ModelConfig& config) {
  ExpertsConfig experts;
  TARE_TRY(experts.count, keys.Count("num_experts"));
  TARE_TRY(experts.chosen, keys.Count("num_experts_per_tok"));
  TARE_TRY(experts.intermediate, keys.Count("moe_intermediate_size"));
  TARE_TRY(experts.normalize, keys.BoolOr("norm_topk_prob", false));
  config.experts = experts;
  TARE_TRY(const int step, keys.CountOr("decoder_sparse_step", 1));
  const bool mixed = keys.Has("mlp_only_layers") && !keys.json()["mlp_only_layers"].empty();
  if (step != 1 || mixed) {
    return Fail(ErrorKind::kUnsupported,
                "{}: layers without experts among those with are not known", keys.source());
  }
  return {};
}

Status AdjustGguf(const GgufFile& file, ModelConfig& config) {
  const GgufKeys keys(file, "qwen3moe");
  ExpertsConfig experts;
  TARE_TRY(experts.count, keys.Count("expert_count"));
  TARE_TRY(experts.chosen, keys.Count("expert_used_count"));
  TARE_TRY(experts.intermediate, keys.Count("expert_feed_forward_length"));
  // Files need not say so: the published models of the family all do.
  TARE_TRY(experts.normalize, keys.BoolOr("expert_weights_norm", true));
  config.experts = experts;
  return {};
}

Status Adjust(ModelConfig& config) {
  config.head_norms = true;
  return {};
}

}  // namespace

const Family kQwen3Moe = {
    .name = "qwen3_moe",
    .gguf_architecture = "qwen3moe",
    .hugging_face_types = kTypes,
    .adjust_gguf = AdjustGguf,
    .adjust_json = AdjustJson,
    .adjust = Adjust,
    .attention = LoadGroupedQueryAttention,
    .feed_forward = LoadMixtureOfExperts,
};

}  // namespace tare::model
