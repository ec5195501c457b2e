#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace tare::engine {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

struct Candidate {
  std::int32_t id;
  float value;  // a logit, later a weight
};

// More likely first; equal ones by id, so that the order never depends on a sort's whims.
bool Before(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}

std::int32_t ArgMax(std::span<const float> logits) {
  std::int32_t best = -1;
  float value = kNever;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > value) {
      value = logits[i];
      best = static_cast<std::int32_t>(i);
    }
  }
  return best;
}

void FillLogprobs(std::span<const float> logits, int alternatives, std::vector<Candidate>& top,
                  double& log_sum) {
  float largest = kNever;
  for (const float x : logits) largest = std::max(largest, x);
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(x - largest);
  log_sum = largest + std::log(sum);
  if (alternatives <= 0) return;
  top.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    top[i] = {static_cast<std::int32_t>(i), logits[i]};
  }
  const auto count = std::min(static_cast<std::size_t>(alternatives), top.size());
  std::partial_sort(top.begin(), top.begin() + static_cast<std::ptrdiff_t>(count), top.end(),
                    Before);
  top.resize(count);
}

void ApplyPenalties(std::span<float> logits, const SampleRequest& request) {
  const SamplingOptions& options = *request.options;
  if (request.history != nullptr) {
    for (const auto& [id, count] : request.history->counts()) {
      if (static_cast<std::size_t>(id) >= logits.size()) continue;
      float& logit = logits[static_cast<std::size_t>(id)];
      if (logit > 0) {
        logit /= options.repetition_penalty;
      } else {
        logit *= options.repetition_penalty;
      }
      if (count.generated > 0) {
        logit -= options.frequency_penalty * static_cast<float>(count.generated) +
                 options.presence_penalty;
      }
    }
  }
  for (const auto& [id, bias] : options.logit_bias) {
    if (static_cast<std::size_t>(ToInt(id)) < logits.size()) {
      logits[static_cast<std::size_t>(ToInt(id))] += bias;
    }
  }
  for (const TokenId id : request.forbidden) {
    if (static_cast<std::size_t>(ToInt(id)) < logits.size()) {
      logits[static_cast<std::size_t>(ToInt(id))] = kNever;
    }
  }
}

// Draws from weights in their order.
std::int32_t Draw(std::span<const Candidate> candidates, double total, double uniform) {
  double left = uniform * total;
  for (const Candidate& c : candidates) {
    left -= c.value;
    if (left < 0) return c.id;
  }
  // Rounding used up the sum: the last one with any weight.
  for (std::size_t i = candidates.size(); i-- > 0;) {
    if (candidates[i].value > 0) return candidates[i].id;
  }
  return candidates.back().id;
}

double Sum(std::span<const Candidate> candidates) {
  double sum = 0.0;
  for (const Candidate& c : candidates) sum += c.value;
  return sum;
}

// Keeps the fewest most likely candidates whose weights reach `share` of the total.
void KeepNucleus(std::vector<Candidate>& candidates, float share) {
  const double wanted = static_cast<double>(share) * Sum(candidates);
  // The nucleus is usually small: order the front in growing pieces instead of sorting it all.
  double sum = 0.0;
  std::size_t ordered = 0;
  for (std::size_t piece = 64; ordered < candidates.size(); piece *= 4) {
    const std::size_t end = std::min(ordered + piece, candidates.size());
    std::partial_sort(candidates.begin() + static_cast<std::ptrdiff_t>(ordered),
                      candidates.begin() + static_cast<std::ptrdiff_t>(end), candidates.end(),
                      Before);
    for (; ordered < end; ++ordered) {
      sum += candidates[ordered].value;
      if (sum >= wanted) {
        candidates.resize(ordered + 1);
        return;
      }
    }
  }
}

}  // namespace

void TokenHistory::AddPrompt(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) counts_[ToInt(token)].in_prompt = true;
}

void TokenHistory::AddGenerated(TokenId token) { ++counts_[ToInt(token)].generated; }

bool HasPenalties(const SamplingOptions& options) {
  return options.frequency_penalty != 0.0f || options.presence_penalty != 0.0f ||
         options.repetition_penalty != 1.0f;
}

double UniformAt(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t bits =
      Mix(Mix(seed + 0x9E3779B97F4A7C15) + (position + 1) * 0xD1B54A32D192ED03);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

std::uint64_t ChoiceSeed(std::uint64_t seed, int choice) {
  return choice == 0 ? seed : Mix(seed ^ Mix(static_cast<std::uint64_t>(choice)));
}

std::optional<GeneratedToken> Sample(std::span<float> logits, const SampleRequest& request) {
  const SamplingOptions& options = *request.options;
  std::vector<Candidate> top;
  double log_sum = 0.0;
  // The picked token's own logit is needed after the penalties have changed it.
  std::vector<float> original;
  if (request.logprobs) {
    FillLogprobs(logits, *request.logprobs, top, log_sum);
    original.assign(logits.begin(), logits.end());
  }
  ApplyPenalties(logits, request);

  const std::int32_t best = ArgMax(logits);
  if (best < 0 || !std::isfinite(logits[static_cast<std::size_t>(best)])) return std::nullopt;

  std::int32_t picked = best;
  if (options.temperature > 0.0f && options.top_k != 1) {
    std::vector<Candidate> candidates(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      candidates[i] = {static_cast<std::int32_t>(i), std::isnan(logits[i]) ? kNever : logits[i]};
    }
    if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < candidates.size()) {
      std::nth_element(candidates.begin(), candidates.begin() + options.top_k, candidates.end(),
                       Before);
      candidates.resize(static_cast<std::size_t>(options.top_k));
      std::sort(candidates.begin(), candidates.end(), Before);
    }
    const float largest = logits[static_cast<std::size_t>(best)];
    const float inverse = 1.0f / options.temperature;
    for (Candidate& c : candidates) c.value = std::exp((c.value - largest) * inverse);
    if (options.top_p < 1.0f) KeepNucleus(candidates, options.top_p);
    if (options.min_p > 0.0f) {
      // The largest weight is 1, so weights are shares of it.
      std::erase_if(candidates, [&](const Candidate& c) { return c.value < options.min_p; });
    }
    picked = Draw(candidates, Sum(candidates), UniformAt(request.seed, request.position));
  }

  GeneratedToken token;
  token.id = TokenId{picked};
  if (request.logprobs) {
    token.logprob = static_cast<float>(original[static_cast<std::size_t>(picked)] - log_sum);
    for (const Candidate& c : top) {
      token.top.emplace_back(TokenId{c.id}, static_cast<float>(c.value - log_sum));
    }
  }
  return token;
}

Status CheckSampling(const SamplingOptions& o, int vocab) {
  const auto outside = [](float value, float low, float high) {
    return !(value >= low && value <= high);  // also true for NaN
  };
  if (outside(o.temperature, 0.0f, 100.0f)) {
    return FailParam("temperature", "temperature is {}; it must be from 0 to 100", o.temperature);
  }
  if (!(o.top_p > 0.0f && o.top_p <= 1.0f)) {
    return FailParam("top_p", "top_p is {}; it must be more than 0 and at most 1", o.top_p);
  }
  if (o.top_k < 0) {
    return FailParam("top_k", "top_k is {}; it must be at least 0 (0: off)", o.top_k);
  }
  if (outside(o.min_p, 0.0f, 1.0f)) {
    return FailParam("min_p", "min_p is {}; it must be from 0 to 1", o.min_p);
  }
  if (outside(o.frequency_penalty, -2.0f, 2.0f)) {
    return FailParam("frequency_penalty", "frequency_penalty is {}; it must be from -2 to 2",
                     o.frequency_penalty);
  }
  if (outside(o.presence_penalty, -2.0f, 2.0f)) {
    return FailParam("presence_penalty", "presence_penalty is {}; it must be from -2 to 2",
                     o.presence_penalty);
  }
  if (!(o.repetition_penalty > 0.0f && o.repetition_penalty <= 100.0f)) {
    return FailParam("repetition_penalty",
                     "repetition_penalty is {}; it must be more than 0 and at most 100 (1: off)",
                     o.repetition_penalty);
  }
  for (const auto& [id, bias] : o.logit_bias) {
    if (ToInt(id) < 0 || ToInt(id) >= vocab) {
      return FailParam("logit_bias", "logit_bias names token {}; the model's tokens are 0 to {}",
                       ToInt(id), vocab - 1);
    }
    if (outside(bias, -100.0f, 100.0f)) {
      return FailParam("logit_bias", "logit_bias of token {} is {}; it must be from -100 to 100",
                       ToInt(id), bias);
    }
  }
  return {};
}

}  // namespace tare::engine
