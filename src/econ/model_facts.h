// What a language model weighs and moves, from its architecture: parameter counts by part, weight
// bytes by precision, KV-cache bytes, operations a token. Dense and sparse (mixture-of-experts)
// feed-forwards; grouped-query attention and multi-head latent attention (MLA).
//
// Sources: the models' published config.json (catalog/models names each); counts follow from the
// matrix shapes and agree with the published totals (model_facts_test.cc). Pure value types.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tare::econ {

struct ModelFacts {
  std::string name;
  std::vector<std::string> aliases;
  std::string source;       // where the shapes were published
  std::string date;         // of publication
  bool unverified = false;  // not read again in that source

  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;  // grouped-query attention; unused by MLA
  int head_dim = 0;  // of queries and keys; for MLA the part without position
  int intermediate = 0;
  int vocabulary = 0;
  int context_tokens = 0;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool query_key_norm = false;

  // MLA when kv_rank > 0: keys and values are cached as one latent of kv_rank plus rope_dim.
  int kv_rank = 0;
  int query_rank = 0;  // 0: queries are projected directly
  int rope_dim = 0;
  int value_dim = 0;

  // Sparse when experts > 0.
  int experts = 0;
  int experts_per_token = 0;
  int shared_experts = 0;
  int expert_intermediate = 0;
  int dense_layers = 0;  // the first ones, with a plain feed-forward

  bool mla() const { return kv_rank > 0; }
  bool sparse() const { return experts > 0; }
  int sparse_layers() const { return sparse() ? layers - dense_layers : 0; }
};

// Parameters by part; all counts are of single weights.
struct ParameterCounts {
  double input_embedding = 0;
  double output_head = 0;  // 0 when tied
  double attention = 0;
  double dense_ffn = 0;
  double shared_experts = 0;
  double routed_experts = 0;
  double router = 0;
  double norms_and_bias = 0;
  double one_expert = 0;

  double total() const {
    return input_embedding + output_head + attention + dense_ffn + shared_experts + routed_experts +
           router + norms_and_bias;
  }
};
ParameterCounts CountParameters(const ModelFacts& model);

// Parameters that take part in one token, both embedding tables included (the published "active").
double ActiveParameters(const ModelFacts& model);
// Weights multiplied for one token: the input table is a look-up and left out.
double MatmulParametersPerToken(const ModelFacts& model);

// Expected number of distinct experts of one layer that `tokens` tokens touch when each draws its
// experts_per_token without regard to the others: E (1 - (1 - k/E)^tokens). An upper bound of the
// expectation for correlated tokens.
double ExpectedDistinctExperts(const ModelFacts& model, double tokens);

// How weights or cached keys and values are stored.
struct Precision {
  std::string_view name;
  double bits = 16;           // of one value
  double metadata_bits = 0;   // scales and zero points, spread over the values
  bool keeps_tables = false;  // embeddings, head, router and norms stay at 16 bits
  double bits_total() const { return bits + metadata_bits; }
};
// fp32, bf16 (fp16), fp8, int8, int4 (AWQ/GPTQ, group 128), int4-g32, nvfp4, mxfp4, q4_1, q8_0.
std::optional<Precision> FindPrecision(std::string_view name);
std::vector<std::string> PrecisionNames();

double WeightBytes(const ModelFacts& model, const Precision& precision);
// Bytes of the weights that one decode step over `batch` tokens reads.
double WeightBytesRead(const ModelFacts& model, const Precision& precision, double batch);
double KvBytesPerToken(const ModelFacts& model, const Precision& precision);
// What the same cache would take without the latent (keys and values of every head kept).
double ExpandedKvBytesPerToken(const ModelFacts& model, const Precision& precision);

// FLOP of one token: 2 a weight, and attention's per token of context.
double MatmulFlopPerToken(const ModelFacts& model);
double AttentionFlopPerContextToken(const ModelFacts& model);

// Working memory of a step over `tokens` tokens of which `sequences` need logits: the widest
// layer's activations at 16 bits (residual twice, gate and up, attention in and out) and the
// logits at 32.
double ActivationBytes(const ModelFacts& model, double tokens, double sequences);

}  // namespace tare::econ
