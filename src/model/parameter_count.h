// How many weights a model has and how many a token meets, from its facts alone.
//
// Counts of weights, biases included. Extra prediction layers some checkpoints carry (DeepSeek's
// MTP) are not part of the model. Shapes: docs/MODELS.md; checked against published totals.
#pragma once

#include <cstdint>

#include "model/model_config.h"

namespace tare::model {

struct ParameterCount {
  std::uint64_t embedding = 0;
  std::uint64_t head = 0;    // 0 when tied to the embedding
  std::uint64_t tables = 0;  // rows are taken from them and no product reads them: an encoder's
  std::uint64_t attention = 0;
  std::uint64_t dense_mlp = 0;
  std::uint64_t routed_experts = 0;
  std::uint64_t shared_experts = 0;
  std::uint64_t routers = 0;
  std::uint64_t norms = 0;
  std::uint64_t routed_experts_active = 0;  // of routed_experts, met by one token

  std::uint64_t total() const;
  // Read to compute one token: chosen experts only, and of the embedding table only what serves as
  // the head.
  std::uint64_t active() const;
  // As active, with the whole embedding table: how some publishers count.
  std::uint64_t active_with_embedding() const;
};

ParameterCount CountParameters(const ModelConfig& config);

// Numbers kept per token over all layers (K and V, or the latent vector and shared key).
std::uint64_t KvNumbersPerToken(const ModelConfig& config);

}  // namespace tare::model
