#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace tare::model {
namespace {

constexpr float kTwoPi = 2.0f * std::numbers::pi_v<float>;

// Long waves are slowed by `factor`, short ones kept, those between blended.
void ScaleLlama3(const RopeConfig& config, std::vector<float>& frequencies) {
  const auto original = static_cast<float>(config.original_context);
  const float longest_kept = original / config.high_frequency_factor;
  const float shortest_slowed = original / config.low_frequency_factor;
  for (float& f : frequencies) {
    const float wavelength = kTwoPi / f;
    if (wavelength < longest_kept) continue;
    if (wavelength > shortest_slowed) {
      f /= config.factor;
      continue;
    }
    const float keep = (original / wavelength - config.low_frequency_factor) /
                       (config.high_frequency_factor - config.low_frequency_factor);
    f = (1.0f - keep) * f / config.factor + keep * f;
  }
}

float YarnMagnitude(float factor, float mscale) {
  return factor <= 1.0f ? 1.0f : 0.1f * mscale * std::log(factor) + 1.0f;
}

// Pairs that turn more than beta_fast times within the original context are kept, those that turn
// less than beta_slow times are slowed by `factor`, with a linear ramp over the pair index between.
void ScaleYarn(const RopeConfig& config, int dims, RopeTable& table) {
  const auto pair_of_turns = [&](float turns) {
    return static_cast<float>(dims) *
           std::log(static_cast<float>(config.original_context) / (turns * kTwoPi)) /
           (2.0f * std::log(config.theta));
  };
  const float low = std::max(std::floor(pair_of_turns(config.beta_fast)), 0.0f);
  float high = std::min(std::ceil(pair_of_turns(config.beta_slow)), static_cast<float>(dims - 1));
  if (low == high) high += 0.001f;
  for (int i = 0; i < table.half(); ++i) {
    float& f = table.frequencies[static_cast<std::size_t>(i)];
    const float ramp = std::clamp((static_cast<float>(i) - low) / (high - low), 0.0f, 1.0f);
    f = f / config.factor * ramp + f * (1.0f - ramp);
  }
  if (config.attention_factor) {
    table.magnitude = *config.attention_factor;
  } else if (config.mscale.value_or(0.0f) != 0.0f && config.mscale_all_dim.value_or(0.0f) != 0.0f) {
    table.magnitude = YarnMagnitude(config.factor, *config.mscale) /
                      YarnMagnitude(config.factor, *config.mscale_all_dim);
  } else {
    table.magnitude = YarnMagnitude(config.factor, 1.0f);
  }
  if (config.mscale_all_dim && *config.mscale_all_dim != 0.0f) {
    const float m = YarnMagnitude(config.factor, *config.mscale_all_dim);
    table.score_scale = m * m;
  }
}

}  // namespace

Result<RopeTable> MakeRopeTable(const RopeConfig& config, int dims,
                                std::span<const float> divisors) {
  TARE_CHECK(dims > 0 && dims % 2 == 0);
  RopeTable table;
  const int half = dims / 2;
  for (int i = 0; i < half; ++i) {
    table.frequencies.push_back(
        1.0f / std::pow(config.theta, static_cast<float>(2 * i) / static_cast<float>(dims)));
  }
  const bool stretched = config.scaling != RopeScaling::kNone;
  if (stretched && !(config.factor >= 1.0f && std::isfinite(config.factor))) {
    return Fail(ErrorKind::kCorrupt, "the rotary scaling factor is {}; at least 1 is needed",
                config.factor);
  }
  const bool needs_original =
      config.scaling == RopeScaling::kLlama3 || config.scaling == RopeScaling::kYarn;
  if (needs_original && config.original_context <= 0) {
    return Fail(ErrorKind::kCorrupt, "rotary scaling needs the original context length");
  }
  switch (config.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (float& f : table.frequencies) f /= config.factor;
      break;
    case RopeScaling::kLlama3:
      if (!(config.high_frequency_factor > config.low_frequency_factor)) {
        return Fail(ErrorKind::kCorrupt,
                    "the rotary scaling's high frequency factor {} is not above the low one {}",
                    config.high_frequency_factor, config.low_frequency_factor);
      }
      ScaleLlama3(config, table.frequencies);
      break;
    case RopeScaling::kYarn:
      ScaleYarn(config, dims, table);
      break;
  }
  if (!divisors.empty()) {
    if (divisors.size() != static_cast<std::size_t>(half)) {
      return Fail(ErrorKind::kCorrupt, "the table of rotary factors has {} entries, {} are needed",
                  divisors.size(), half);
    }
    for (std::size_t i = 0; i < divisors.size(); ++i) {
      if (!(divisors[i] > 0.0f)) {
        return Fail(ErrorKind::kCorrupt, "rotary factor {} is {}; it must be positive", i,
                    divisors[i]);
      }
      table.frequencies[i] /= divisors[i];
    }
  }
  return table;
}

}  // namespace tare::model
