// Which experts a token takes, and with what weight: the routers of Qwen3-MoE (softmax, top k),
// DeepSeek-V2 (arXiv 2405.04434: softmax, best groups first) and DeepSeek-V3 (arXiv 2412.19437:
// sigmoid, chosen by score plus bias, weighted by score). Pure; a token's choice depends on its own
// scores only. Ties go to the expert of the lower number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model_config.h"

namespace tare::model {

// Scratch for one caller, kept between calls.
struct RouterScratch {
  std::vector<float> scores;  // [experts]
  std::vector<float> keys;    // scores as the choice sees them
  std::vector<float> groups;  // [groups]
  std::vector<std::int32_t> ids;
};

// logits: [count], one per expert; bias: [count], or empty without choice_bias. Writes chosen ids,
// best first, and their weights.
void ChooseExperts(const ExpertsConfig& config, std::span<const float> logits,
                   std::span<const float> bias, RouterScratch& scratch, std::span<std::int32_t> ids,
                   std::span<float> weights);

}  // namespace tare::model
