#include "model/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace tare::model {
namespace {

// What keeps a token of all-zero scores from dividing by zero, as published with DeepSeek-V3.
constexpr float kSmallestSum = 1e-20f;

// The indices of the largest keys, largest first. Always as many as `best` holds, also when keys
// are not numbers: damaged weights must not choose an expert that does not exist.
void Best(std::span<const float> keys, std::span<std::int32_t> best) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto key = [&](std::size_t at) { return keys[static_cast<std::size_t>(best[at])]; };
    if (found == best.size()) {
      if (!(keys[i] > key(found - 1))) continue;
      --found;
    }
    std::size_t at = found++;
    for (; at > 0 && keys[i] > key(at - 1); --at) best[at] = best[at - 1];
    best[at] = static_cast<std::int32_t>(i);
  }
}

void Score(const ExpertsConfig& config, std::span<const float> logits, std::span<float> scores) {
  if (config.scoring == RouterScoring::kSigmoid) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      scores[i] = 1.0f / (1.0f + std::exp(-logits[i]));
    }
    return;
  }
  const float largest = *std::max_element(logits.begin(), logits.end());
  float sum = 0.0f;
  for (std::size_t i = 0; i < logits.size(); ++i) sum += scores[i] = std::exp(logits[i] - largest);
  for (float& score : scores) score /= sum;
}

// Takes experts outside the best groups out of the choice.
void KeepBestGroups(const ExpertsConfig& config, RouterScratch& scratch) {
  const auto groups = static_cast<std::size_t>(config.groups);
  const std::size_t size = scratch.keys.size() / groups;
  scratch.groups.resize(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    float best = -std::numeric_limits<float>::infinity();
    float second = best;
    for (const float key : std::span(scratch.keys).subspan(g * size, size)) {
      second = std::max(second, std::min(best, key));
      best = std::max(best, key);
    }
    scratch.groups[g] = config.group_of_best_two && size > 1 ? best + second : best;
  }
  scratch.ids.resize(static_cast<std::size_t>(config.chosen_groups));
  Best(scratch.groups, scratch.ids);
  for (std::size_t g = 0; g < groups; ++g) {
    if (std::ranges::find(scratch.ids, static_cast<std::int32_t>(g)) != scratch.ids.end()) continue;
    std::ranges::fill(std::span(scratch.keys).subspan(g * size, size),
                      -std::numeric_limits<float>::infinity());
  }
}

}  // namespace

void ChooseExperts(const ExpertsConfig& config, std::span<const float> logits,
                   std::span<const float> bias, RouterScratch& scratch, std::span<std::int32_t> ids,
                   std::span<float> weights) {
  TARE_CHECK(logits.size() >= ids.size() && ids.size() == weights.size());
  TARE_CHECK(bias.empty() || bias.size() == logits.size());
  scratch.scores.resize(logits.size());
  Score(config, logits, scratch.scores);
  scratch.keys = scratch.scores;
  for (std::size_t i = 0; i < bias.size(); ++i) scratch.keys[i] += bias[i];
  if (config.groups > 1) KeepBestGroups(config, scratch);
  Best(scratch.keys, ids);
  float sum = 0.0f;
  for (std::size_t j = 0; j < ids.size(); ++j) {
    weights[j] = scratch.scores[static_cast<std::size_t>(ids[j])];  // not the biased key
    sum += weights[j];
  }
  const float factor = config.normalize ? config.scale / (sum + kSmallestSum) : config.scale;
  for (float& weight : weights) weight *= factor;
}

}  // namespace tare::model
