// The facts that define a transformer, whatever file they were read from.
//
// Plain values. Lengths are in tokens, sizes in elements. Which facts a family uses, and the names
// they have in GGUF metadata and in config.json, is in docs/MODELS.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tare::model {

// How rotary positions are stretched past the length the model was first trained for.
enum class RopeScaling { kNone, kLinear, kLlama3, kYarn };

struct RopeConfig {
  float theta = 10000.0f;
  int dims = 0;  // leading elements of a head that are rotated; 0: all
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;
  int original_context = 0;
  // kLlama3: wavelengths between original/high and original/low are blended.
  float low_frequency_factor = 1.0f;
  float high_frequency_factor = 4.0f;
  // kYarn. The mscale pair is DeepSeek's; attention_factor overrides what factor implies.
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
  std::optional<float> mscale;
  std::optional<float> mscale_all_dim;
  std::optional<float> attention_factor;
};

// Multi-head latent attention: K and V of a token are kept as one latent vector.
struct LatentAttentionConfig {
  int q_rank = 0;  // 0: queries are projected directly
  int kv_rank = 0;
  int nope_dim = 0;  // of a query and key head, not rotated
  int rope_dim = 0;  // of a query head, and one key for all heads, rotated
  int value_dim = 0;
};

enum class RouterScoring { kSoftmax, kSigmoid };

struct ExpertsConfig {
  int count = 0;
  int chosen = 0;               // per token
  int intermediate = 0;         // of one expert
  int shared_intermediate = 0;  // all shared experts together; 0: none
  int leading_dense_layers = 0;
  int groups = 1;
  int chosen_groups = 1;
  RouterScoring scoring = RouterScoring::kSoftmax;
  bool normalize = false;          // chosen weights are divided by their sum
  bool choice_bias = false;        // a bias that moves the choice but not the weights
  bool group_of_best_two = false;  // a group counts as its two best experts' sum, else as its best
  float scale = 1.0f;
};

// Of an encoder, which makes vectors of texts instead of writing them.
struct EncoderConfig {
  int token_types = 0;  // kinds of segments it knows; texts are of the first
};

struct ModelConfig {
  std::string family;  // "llama"
  std::string name;    // as the checkpoint calls itself
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int intermediate = 0;
  int vocab = 0;
  int context_length = 0;  // what the model was trained for
  float norm_epsilon = 1e-5f;
  RopeConfig rope;
  bool tied_embeddings = false;
  bool attention_bias = false;  // on q, k and v
  bool head_norms = false;      // RMSNorm over each head of q and k, before rotation
  std::optional<LatentAttentionConfig> latent;
  std::optional<ExpertsConfig> experts;
  std::optional<EncoderConfig> encoder;  // then rope and KV heads have no meaning
  int prediction_layers = 0;             // stored after the last layer, not part of the model
  std::uint64_t parameters = 0;          // stored, tied ones once
  std::uint64_t active_parameters = 0;   // read to compute one token, without the embedding table
};

}  // namespace tare::model
