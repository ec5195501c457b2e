#include "econ/model_facts.h"

#include <algorithm>
#include <cmath>

namespace tare::econ {
namespace {

constexpr double kBitsPerByte = 8;
constexpr double kTableBits = 16;

// AWQ and GPTQ keep a 16-bit scale and a 4-bit zero point for each group.
constexpr Precision kPrecisions[] = {
    {"fp32", 32, 0, false},
    {"bf16", 16, 0, false},
    {"fp16", 16, 0, false},
    {"fp8", 8, 32.0 / (128 * 128), true},
    {"int8", 8, 0, true},
    {"int4", 4, (16 + 4) / 128.0, true},
    {"int4-g32", 4, 16 / 32.0, true},
    {"nvfp4", 4, 8 / 16.0, true},
    {"mxfp4", 4, 8 / 32.0, true},
    {"q4_0", 4, 16 / 32.0, false},
    {"q4_1", 4, 32 / 32.0, false},
    {"q8_0", 8, 16 / 32.0, false},
};

double AttentionPerLayer(const ModelFacts& m) {
  const double hidden = m.hidden;
  if (m.mla()) {
    const double qk = m.head_dim + m.rope_dim;
    const double query = m.query_rank > 0 ? hidden * m.query_rank + m.query_rank * (m.heads * qk)
                                          : hidden * m.heads * qk;
    return query + hidden * (m.kv_rank + m.rope_dim) +
           static_cast<double>(m.kv_rank) * m.heads * (m.head_dim + m.value_dim) +
           static_cast<double>(m.heads) * m.value_dim * hidden;
  }
  const double query = static_cast<double>(m.heads) * m.head_dim;
  const double key_value = static_cast<double>(m.kv_heads) * m.head_dim;
  return hidden * (2 * query + 2 * key_value);
}

double NormsAndBiasPerLayer(const ModelFacts& m) {
  double count = 2.0 * m.hidden;
  if (m.mla()) count += m.kv_rank + m.query_rank;
  if (m.qkv_bias) count += static_cast<double>(m.heads + 2 * m.kv_heads) * m.head_dim;
  if (m.query_key_norm) count += 2.0 * m.head_dim;
  return count;
}

double QuantisedBytes(double parameters, const Precision& precision) {
  return parameters * precision.bits_total() / kBitsPerByte;
}

double TableBytes(double parameters, const Precision& precision) {
  return precision.keeps_tables ? parameters * kTableBits / kBitsPerByte
                                : QuantisedBytes(parameters, precision);
}

}  // namespace

ParameterCounts CountParameters(const ModelFacts& m) {
  ParameterCounts counts;
  const double table = static_cast<double>(m.vocabulary) * m.hidden;
  counts.input_embedding = table;
  counts.output_head = m.tied_embeddings ? 0 : table;
  counts.attention = AttentionPerLayer(m) * m.layers;
  const int dense_layers = m.layers - m.sparse_layers();
  counts.dense_ffn = 3.0 * m.hidden * m.intermediate * dense_layers;
  if (m.sparse()) {
    counts.one_expert = 3.0 * m.hidden * m.expert_intermediate;
    counts.routed_experts = counts.one_expert * m.experts * m.sparse_layers();
    counts.shared_experts = counts.one_expert * m.shared_experts * m.sparse_layers();
    counts.router = static_cast<double>(m.hidden) * m.experts * m.sparse_layers();
  }
  counts.norms_and_bias = NormsAndBiasPerLayer(m) * m.layers + m.hidden;
  return counts;
}

double ActiveParameters(const ModelFacts& model) {
  const ParameterCounts counts = CountParameters(model);
  if (!model.sparse()) return counts.total();
  const double idle =
      counts.one_expert * (model.experts - model.experts_per_token) * model.sparse_layers();
  return counts.total() - idle;
}

double MatmulParametersPerToken(const ModelFacts& model) {
  const ParameterCounts counts = CountParameters(model);
  const double active = ActiveParameters(model);
  return model.tied_embeddings ? active : active - counts.input_embedding;
}

double ExpectedDistinctExperts(const ModelFacts& model, double tokens) {
  if (!model.sparse()) return 0;
  const double share = static_cast<double>(model.experts_per_token) / model.experts;
  return model.experts * -std::expm1(tokens * std::log1p(-share));
}

std::optional<Precision> FindPrecision(std::string_view name) {
  for (const Precision& precision : kPrecisions) {
    if (precision.name == name) return precision;
  }
  return std::nullopt;
}

std::vector<std::string> PrecisionNames() {
  std::vector<std::string> names;
  for (const Precision& precision : kPrecisions) names.emplace_back(precision.name);
  return names;
}

double WeightBytes(const ModelFacts& model, const Precision& precision) {
  const ParameterCounts counts = CountParameters(model);
  const double tables =
      counts.input_embedding + counts.output_head + counts.router + counts.norms_and_bias;
  return QuantisedBytes(counts.total() - tables, precision) + TableBytes(tables, precision);
}

double WeightBytesRead(const ModelFacts& model, const Precision& precision, double batch) {
  const ParameterCounts counts = CountParameters(model);
  const double head = model.tied_embeddings ? counts.input_embedding : counts.output_head;
  const double tables = head + counts.router + counts.norms_and_bias;
  double matrices = counts.attention + counts.dense_ffn + counts.shared_experts;
  if (model.sparse()) {
    matrices += counts.one_expert * ExpectedDistinctExperts(model, batch) * model.sparse_layers();
  }
  return QuantisedBytes(matrices, precision) + TableBytes(tables, precision);
}

double KvBytesPerToken(const ModelFacts& model, const Precision& precision) {
  const double values = model.mla()
                            ? static_cast<double>(model.kv_rank + model.rope_dim) * model.layers
                            : 2.0 * model.kv_heads * model.head_dim * model.layers;
  return values * precision.bits_total() / kBitsPerByte;
}

double ExpandedKvBytesPerToken(const ModelFacts& model, const Precision& precision) {
  if (!model.mla()) return KvBytesPerToken(model, precision);
  const double per_head = model.head_dim + model.rope_dim + model.value_dim;
  return per_head * model.heads * model.layers * precision.bits_total() / kBitsPerByte;
}

double MatmulFlopPerToken(const ModelFacts& model) { return 2 * MatmulParametersPerToken(model); }

double AttentionFlopPerContextToken(const ModelFacts& model) {
  // A multiply and an add for each element of the score and of the weighted sum. MLA attends in
  // the latent: kv_rank + rope_dim wide for scores, kv_rank for sums.
  const double width = model.mla() ? 2.0 * model.kv_rank + model.rope_dim : 2.0 * model.head_dim;
  return 2.0 * width * model.heads * model.layers;
}

double ActivationBytes(const ModelFacts& model, double tokens, double sequences) {
  const double ffn_width =
      model.sparse()
          ? std::max(static_cast<double>(model.intermediate) * (model.dense_layers > 0 ? 1 : 0),
                     static_cast<double>(model.expert_intermediate) *
                         (model.experts_per_token + model.shared_experts))
          : model.intermediate;
  const double qk = model.head_dim + model.rope_dim;
  const double attention_width = 2.0 * model.heads * qk + 2.0 * model.kv_heads * model.head_dim;
  const double widest = std::max(2 * ffn_width, attention_width);
  return tokens * (2.0 * model.hidden + widest) * 2 + sequences * model.vocabulary * 4.0;
}

}  // namespace tare::econ
