// DeepSeek V2, V3 (and R1), and Kimi K2: latent attention, leading dense layers, then routed and
// shared experts. V2 scores experts by softmax and takes groups by their best; V3 and K2 by sigmoid
// with a bias that moves only the choice, groups by their two best. GGUF has one architecture,
// "deepseek2", for all of them.
#include "model/blocks.h"
#include "model/config_gguf.h"
#include "model/config_json.h"
#include "model/families.h"

namespace tare::model {
namespace {

constexpr const char* kV2Types[] = {"deepseek_v2"};
constexpr const char* kV3Types[] = {"deepseek_v3"};
constexpr const char* kKimiTypes[] = {"kimi_k2"};

void SetLatent(const LatentAttentionConfig& latent, ModelConfig& config) {
  config.latent = latent;
  config.head_dim = latent.nope_dim + latent.rope_dim;
  config.kv_heads = config.heads;
  config.rope.dims = latent.rope_dim;
}

// What follows from how experts are scored.
void SetScoring(RouterScoring scoring, ExpertsConfig& experts) {
  experts.scoring = scoring;
  experts.group_of_best_two = experts.choice_bias = scoring == RouterScoring::kSigmoid;
}

Status ReadRouter(const JsonKeys& keys, bool is_v2, ExpertsConfig& experts) {
  // Configs that the transformers library writes leave out what a family does anyway.
  TARE_TRY(const auto scoring, keys.StringOr("scoring_func", is_v2 ? "softmax" : "sigmoid"));
  TARE_TRY(const auto method, keys.StringOr("topk_method", is_v2 ? "greedy" : "noaux_tc"));
  TARE_TRY(experts.groups, keys.CountOr("n_group", 1));
  TARE_TRY(experts.chosen_groups, keys.CountOr("topk_group", 1));
  TARE_TRY(experts.normalize, keys.BoolOr("norm_topk_prob", !is_v2));
  TARE_TRY(experts.scale, keys.FloatOr("routed_scaling_factor", 1.0f));
  const bool softmax =
      scoring == "softmax" && (method == "greedy" || method == "group_limited_greedy");
  const bool sigmoid = scoring == "sigmoid" && method == "noaux_tc";
  if (!softmax && !sigmoid) {
    return Fail(ErrorKind::kUnsupported,
                "{}: a router with scoring_func '{}' and topk_method '{}' is not known; softmax "
                "with greedy or group_limited_greedy is, and sigmoid with noaux_tc",
                keys.source(), scoring, method);
  }
  if (softmax && experts.normalize && experts.scale != 1.0f) {
    return Fail(ErrorKind::kUnsupported,
                "{}: norm_topk_prob with a routed_scaling_factor of {}: published programs for "
                "softmax routers differ on what that means",
                keys.source(), experts.scale);
  }
  SetScoring(softmax ? RouterScoring::kSoftmax : RouterScoring::kSigmoid, experts);
  if (method == "greedy") experts.groups = experts.chosen_groups = 1;
  return {};
}

Status ReadJson(const JsonKeys& keys, bool is_v2, ModelConfig& config) {
  LatentAttentionConfig latent;
  TARE_TRY(latent.q_rank, keys.CountOr("q_lora_rank", 0));
  TARE_TRY(latent.kv_rank, keys.Count("kv_lora_rank"));
  TARE_TRY(latent.nope_dim, keys.Count("qk_nope_head_dim"));
  TARE_TRY(latent.rope_dim, keys.Count("qk_rope_head_dim"));
  TARE_TRY(latent.value_dim, keys.Count("v_head_dim"));
  SetLatent(latent, config);
  TARE_TRY(const bool neighbours, keys.BoolOr("rope_interleave", true));
  if (!neighbours) {
    return Fail(ErrorKind::kUnsupported, "{}: rope_interleave false is not known", keys.source());
  }

  ExpertsConfig experts;
  TARE_TRY(experts.count, keys.Count("n_routed_experts"));
  TARE_TRY(experts.chosen, keys.Count("num_experts_per_tok"));
  TARE_TRY(experts.intermediate, keys.Count("moe_intermediate_size"));
  TARE_TRY(const int shared, keys.CountOr("n_shared_experts", 0));
  experts.shared_intermediate = shared * experts.intermediate;
  TARE_TRY(experts.leading_dense_layers, keys.CountOr("first_k_dense_replace", 0));
  TARE_RETURN_IF_ERROR(ReadRouter(keys, is_v2, experts));
  TARE_TRY(const int frequency, keys.CountOr("moe_layer_freq", 1));
  if (frequency != 1) {
    return Fail(ErrorKind::kUnsupported, "{}: moe_layer_freq {} is not known, 1 is", keys.source(),
                frequency);
  }
  config.experts = experts;
  return {};
}

Status AdjustV2(const JsonKeys& keys, ModelConfig& config) { return ReadJson(keys, true, config); }
Status AdjustV3(const JsonKeys& keys, ModelConfig& config) { return ReadJson(keys, false, config); }

Status AdjustGguf(const GgufFile& file, ModelConfig& config) {
  const GgufKeys keys(file, "deepseek2");
  LatentAttentionConfig latent;
  TARE_TRY(latent.q_rank, keys.CountOr("attention.q_lora_rank", 0));
  TARE_TRY(latent.kv_rank, keys.Count("attention.kv_lora_rank"));
  TARE_TRY(latent.rope_dim, keys.Count("rope.dimension_count"));
  // Newer files give what the cache holds as key_length, and the heads' own sizes as *_mla.
  const bool has_mla = keys.Has("attention.key_length_mla");
  TARE_TRY(const int key,
           keys.Count(has_mla ? "attention.key_length_mla" : "attention.key_length"));
  TARE_TRY(latent.value_dim,
           keys.Count(has_mla ? "attention.value_length_mla" : "attention.value_length"));
  latent.nope_dim = key - latent.rope_dim;
  SetLatent(latent, config);
  if (config.rope.scaling == RopeScaling::kYarn) {
    // 0.1 times mscale_all_dim, which in all published models is mscale too.
    TARE_TRY(const float multiplier, keys.FloatOr("rope.scaling.yarn_log_multiplier", 0.0f));
    config.rope.mscale = config.rope.mscale_all_dim = 10.0f * multiplier;
  }

  ExpertsConfig experts;
  TARE_TRY(experts.count, keys.Count("expert_count"));
  TARE_TRY(experts.chosen, keys.Count("expert_used_count"));
  TARE_TRY(experts.intermediate, keys.Count("expert_feed_forward_length"));
  TARE_TRY(const int shared, keys.CountOr("expert_shared_count", 0));
  experts.shared_intermediate = shared * experts.intermediate;
  TARE_TRY(experts.leading_dense_layers, keys.CountOr("leading_dense_block_count", 0));
  TARE_TRY(experts.scale, keys.FloatOr("expert_weights_scale", 1.0f));
  TARE_TRY(experts.normalize, keys.BoolOr("expert_weights_norm", false));
  constexpr int kSoftmax = 1;
  constexpr int kSigmoid = 2;
  TARE_TRY(const int scoring, keys.CountOr("expert_gating_func", kSoftmax));
  if (scoring != kSoftmax && scoring != kSigmoid) {
    return Fail(ErrorKind::kUnsupported, "{}: expert_gating_func {} is not known", keys.source(),
                scoring);
  }
  SetScoring(scoring == kSoftmax ? RouterScoring::kSoftmax : RouterScoring::kSigmoid, experts);
  TARE_TRY(experts.groups, keys.CountOr("expert_group_count", 1));
  TARE_TRY(experts.chosen_groups, keys.CountOr("expert_group_used_count", 1));
  if (scoring == kSigmoid) config.family = kDeepseekV3.name;
  config.experts = experts;
  return {};
}

}  // namespace

const Family kDeepseekV2 = {
    .name = "deepseek_v2",
    .gguf_architecture = "deepseek2",
    .hugging_face_types = kV2Types,
    .adjust_gguf = AdjustGguf,
    .adjust_json = AdjustV2,
    .attention = LoadLatentAttention,
    .feed_forward = LoadMixtureOfExperts,
};

const Family kDeepseekV3 = {
    .name = "deepseek_v3",
    .hugging_face_types = kV3Types,
    .adjust_json = AdjustV3,
    .attention = LoadLatentAttention,
    .feed_forward = LoadMixtureOfExperts,
};

const Family kKimiK2 = {
    .name = "kimi_k2",
    .hugging_face_types = kKimiTypes,
    .adjust_json = AdjustV3,
    .attention = LoadLatentAttention,
    .feed_forward = LoadMixtureOfExperts,
};

}  // namespace tare::model
