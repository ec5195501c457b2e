// Qwen 3, mixture of experts: attention as qwen3, and in every layer a softmax router over experts
// of which each token takes a few. Facts and sizes are read; computing is refused by name.
#include <nlohmann/json.hpp>

#include "model/config_json.h"
#include "model/families.h"

namespace tare::model {
namespace {

constexpr const char* kTypes[] = {"qwen3_moe"};

Status AdjustJson(const JsonKeys& keys, ModelConfig& config) {
  config.head_norms = true;
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

}  // namespace

const Family kQwen3Moe = {
    .name = "qwen3_moe",
    .hugging_face_types = kTypes,
    .adjust_json = AdjustJson,
};

}  // namespace tare::model
