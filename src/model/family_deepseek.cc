// DeepSeek V2, V3 (and R1), and Kimi K2: latent attention, leading dense layers, then routed and
// shared experts. V2 scores experts by softmax; V3 and K2 by sigmoid with a bias that moves only
// the choice. Facts and sizes are read; computing is refused by name.
#include "model/config_json.h"
#include "model/families.h"

namespace tare::model {
namespace {

constexpr const char* kV2Types[] = {"deepseek_v2"};
constexpr const char* kV3Types[] = {"deepseek_v3"};
constexpr const char* kKimiTypes[] = {"kimi_k2"};

Status AdjustJson(const JsonKeys& keys, ModelConfig& config) {
  LatentAttentionConfig latent;
  TARE_TRY(latent.q_rank, keys.CountOr("q_lora_rank", 0));
  TARE_TRY(latent.kv_rank, keys.Count("kv_lora_rank"));
  TARE_TRY(latent.nope_dim, keys.Count("qk_nope_head_dim"));
  TARE_TRY(latent.rope_dim, keys.Count("qk_rope_head_dim"));
  TARE_TRY(latent.value_dim, keys.Count("v_head_dim"));
  config.latent = latent;
  config.head_dim = latent.nope_dim + latent.rope_dim;
  config.kv_heads = config.heads;
  config.rope.dims = latent.rope_dim;

  ExpertsConfig experts;
  TARE_TRY(experts.count, keys.Count("n_routed_experts"));
  TARE_TRY(experts.chosen, keys.Count("num_experts_per_tok"));
  TARE_TRY(experts.intermediate, keys.Count("moe_intermediate_size"));
  TARE_TRY(const int shared, keys.CountOr("n_shared_experts", 0));
  experts.shared_intermediate = shared * experts.intermediate;
  TARE_TRY(experts.leading_dense_layers, keys.CountOr("first_k_dense_replace", 0));
  TARE_TRY(experts.groups, keys.CountOr("n_group", 1));
  TARE_TRY(experts.chosen_groups, keys.CountOr("topk_group", 1));
  TARE_TRY(experts.normalize, keys.BoolOr("norm_topk_prob", false));
  TARE_TRY(experts.scale, keys.FloatOr("routed_scaling_factor", 1.0f));
  TARE_TRY(const auto scoring, keys.StringOr("scoring_func", "softmax"));
  TARE_TRY(const auto method, keys.StringOr("topk_method", "greedy"));
  if (scoring != "softmax" && scoring != "sigmoid") {
    return Fail(ErrorKind::kUnsupported, "{}: scoring_func '{}' is not known", keys.source(),
                scoring);
  }
  experts.scoring = scoring == "sigmoid" ? RouterScoring::kSigmoid : RouterScoring::kSoftmax;
  experts.choice_bias = method == "noaux_tc";
  TARE_TRY(const int frequency, keys.CountOr("moe_layer_freq", 1));
  if (frequency != 1) {
    return Fail(ErrorKind::kUnsupported, "{}: moe_layer_freq {} is not known, 1 is", keys.source(),
                frequency);
  }
  config.experts = experts;
  return {};
}

}  // namespace

const Family kDeepseekV2 = {
    .name = "deepseek_v2",
    .hugging_face_types = kV2Types,
    .adjust_json = AdjustJson,
};

const Family kDeepseekV3 = {
    .name = "deepseek_v3",
    .hugging_face_types = kV3Types,
    .adjust_json = AdjustJson,
};

const Family kKimiK2 = {
    .name = "kimi_k2",
    .hugging_face_types = kKimiTypes,
    .adjust_json = AdjustJson,
};

}  // namespace tare::model
