#include "model/parameter_count.h"

namespace tare::model {
namespace {

std::uint64_t U(int value) { return static_cast<std::uint64_t>(value); }

std::uint64_t AttentionOfLayer(const ModelConfig& c) {
  if (c.latent) {
    const LatentAttentionConfig& m = *c.latent;
    const std::uint64_t query_out = U(c.heads) * U(m.nope_dim + m.rope_dim);
    const std::uint64_t query = m.q_rank > 0 ? U(c.hidden) * U(m.q_rank) + U(m.q_rank) * query_out
                                             : U(c.hidden) * query_out;
    const std::uint64_t down = U(c.hidden) * U(m.kv_rank + m.rope_dim);
    const std::uint64_t up = U(m.kv_rank) * U(c.heads) * U(m.nope_dim + m.value_dim);
    return query + down + up + U(c.heads) * U(m.value_dim) * U(c.hidden);
  }
  const std::uint64_t q = U(c.heads) * U(c.head_dim);
  const std::uint64_t kv = 2 * U(c.kv_heads) * U(c.head_dim);
  return U(c.hidden) * (q + kv) + q * U(c.hidden) + (c.attention_bias ? q + kv : 0);
}

std::uint64_t NormsOfLayer(const ModelConfig& c) {
  std::uint64_t norms = 2 * U(c.hidden);
  if (c.head_norms) norms += 2 * U(c.head_dim);
  if (c.latent) norms += U(c.latent->q_rank) + U(c.latent->kv_rank);
  return norms;
}

}  // namespace

std::uint64_t ParameterCount::total() const {
  return embedding + head + tables + attention + dense_mlp + routed_experts + shared_experts +
         routers + norms;
}

std::uint64_t ParameterCount::active() const {
  return active_with_embedding() - tables - (head > 0 ? embedding : 0);
}

std::uint64_t ParameterCount::active_with_embedding() const {
  return total() - routed_experts + routed_experts_active;
}

ParameterCount CountParameters(const ModelConfig& c) {
  ParameterCount n;
  n.embedding = U(c.vocab) * U(c.hidden);
  n.head = c.tied_embeddings ? 0 : n.embedding;
  n.attention = U(c.layers) * AttentionOfLayer(c);
  n.norms = U(c.layers) * NormsOfLayer(c) + U(c.hidden);
  const std::uint64_t dense_layers = c.experts ? U(c.experts->leading_dense_layers) : U(c.layers);
  n.dense_mlp = dense_layers * 3 * U(c.hidden) * U(c.intermediate);
  if (c.encoder) {
    n.embedding = n.head = 0;
    n.tables = (U(c.vocab) + U(c.context_length) + U(c.encoder->token_types)) * U(c.hidden);
    n.attention += U(c.layers) * U(c.hidden);  // the output's bias
    n.dense_mlp =
        U(c.layers) * (2 * U(c.hidden) * U(c.intermediate) + U(c.intermediate) + U(c.hidden));
    n.norms = (2 * U(c.layers) + 1) * 2 * U(c.hidden);
  }
  if (c.experts) {
    const ExpertsConfig& e = *c.experts;
    const std::uint64_t layers = U(c.layers) - dense_layers;
    const std::uint64_t expert = 3 * U(c.hidden) * U(e.intermediate);
    n.routed_experts = layers * U(e.count) * expert;
    n.routed_experts_active = layers * U(e.chosen) * expert;
    n.shared_experts = layers * 3 * U(c.hidden) * U(e.shared_intermediate);
    n.routers = layers * (U(e.count) * U(c.hidden) + (e.choice_bias ? U(e.count) : 0));
  }
  return n;
}

std::uint64_t KvNumbersPerToken(const ModelConfig& c) {
  if (c.encoder) return 0;
  if (c.latent) return U(c.layers) * U(c.latent->kv_rank + c.latent->rope_dim);
  return U(c.layers) * 2 * U(c.kv_heads) * U(c.head_dim);
}

}  // namespace tare::model
