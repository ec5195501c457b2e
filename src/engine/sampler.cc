#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
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

// The most likely token, the first of equal ones; -1 when there is none above minus infinity.
std::int32_t ArgMax(std::span<const float> logits) {
  // Lanes side by side, so that the loop is vector code; the comparison passes over NaN.
  constexpr std::size_t kLanes = 16;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, kNever);
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) {
      lanes[k] = logits[i + k] > lanes[k] ? logits[i + k] : lanes[k];
    }
  }
  for (; i < logits.size(); ++i) lanes[0] = logits[i] > lanes[0] ? logits[i] : lanes[0];
  const float largest = *std::max_element(lanes, lanes + kLanes);
  if (largest == kNever) return -1;
  return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), largest) -
                                   logits.begin());
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

// e^x for x <= 0, written so that the compiler turns a loop over it into vector code (std::exp
// would be a call per token of the vocabulary). Relative error below 3e-7.
float ExpOfNegative(float x) {
  const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;  // ln 2 in two parts
  float p = 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const auto bits = std::bit_cast<std::uint32_t>(shifted);
  const float power = std::bit_cast<float>((bits + 127u) << 23);
  return x < -87.0f ? 0.0f : p * power;
}

// weights[i] = e^((logits[i] - largest) / temperature); what is not a number weighs nothing.
void Weigh(std::span<const float> logits, float largest, float temperature,
           std::vector<float>& weights) {
  weights.resize(logits.size());
  const float inverse = 1.0f / temperature;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float x = (logits[i] - largest) * inverse;
    weights[i] = ExpOfNegative(x <= 0.0f ? x : -100.0f);
  }
}

// In a fixed order, four sums side by side.
double Sum(std::span<const float> values) {
  double sums[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= values.size(); i += 4) {
    for (std::size_t k = 0; k < 4; ++k) sums[k] += static_cast<double>(values[i + k]);
  }
  for (; i < values.size(); ++i) sums[0] += static_cast<double>(values[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

double Sum(std::span<const Candidate> candidates) {
  double sum = 0.0;
  for (const Candidate& c : candidates) sum += static_cast<double>(c.value);
  return sum;
}

// The tokens with at least `least` weight, in order of id.
void Collect(std::span<const float> weights, float least, std::vector<Candidate>& candidates) {
  candidates.clear();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] >= least) candidates.push_back({static_cast<std::int32_t>(i), weights[i]});
  }
}

// The `count` heaviest tokens, heaviest first.
void CollectTop(std::span<const float> weights, std::size_t count,
                std::vector<Candidate>& candidates) {
  // They are usually far above the rest: look at falling bounds before looking at everything.
  for (const float least : {1e-3f, 1e-6f, 0.0f}) {
    Collect(weights, least, candidates);
    if (candidates.size() >= count) break;
  }
  if (count < candidates.size()) {
    const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(candidates.begin(), end, candidates.end(), Before);
    candidates.resize(count);
  }
  std::sort(candidates.begin(), candidates.end(), Before);
}

// Cuts a list ordered heaviest first where it reaches `wanted`.
void CutAt(std::vector<Candidate>& candidates, double wanted) {
  double sum = 0.0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    sum += static_cast<double>(candidates[i].value);
    if (sum >= wanted) {
      candidates.resize(i + 1);
      return;
    }
  }
}

// The fewest heaviest tokens that reach `share` of all weight, heaviest first.
void CollectNucleus(std::span<const float> weights, double share,
                    std::vector<Candidate>& candidates) {
  const double wanted = share * Sum(weights);
  for (const float least : {1e-2f, 1e-4f, 1e-6f, 0.0f}) {
    Collect(weights, least, candidates);
    if (Sum(candidates) >= wanted) break;
  }
  std::sort(candidates.begin(), candidates.end(), Before);
  CutAt(candidates, wanted);
}

// Draws one of the candidates by weight, in their order.
std::int32_t Draw(std::span<const Candidate> candidates, double uniform) {
  double left = uniform * Sum(candidates);
  std::int32_t last = -1;
  for (const Candidate& c : candidates) {
    if (c.value <= 0.0f) continue;
    last = c.id;
    left -= static_cast<double>(c.value);
    if (left < 0) return c.id;
  }
  return last;  // rounding used up the sum
}

// The same among all tokens, in order of id: first the block, then the token in it.
std::int32_t DrawFromAll(std::span<const float> weights, double uniform,
                         std::vector<double>& sums) {
  constexpr std::size_t kBlock = 256;
  sums.clear();
  double total = 0.0;
  for (std::size_t at = 0; at < weights.size(); at += kBlock) {
    sums.push_back(Sum(weights.subspan(at, std::min(kBlock, weights.size() - at))));
    total += sums.back();
  }
  double left = uniform * total;
  std::size_t block = 0, last = 0;
  for (; block < sums.size(); ++block) {
    if (sums[block] <= 0.0) continue;
    last = block;
    if (left < sums[block]) break;
    left -= sums[block];
  }
  std::int32_t picked = -1;
  const std::size_t begin = std::min(block, last) * kBlock;
  for (std::size_t i = begin; i < std::min(begin + kBlock, weights.size()); ++i) {
    if (weights[i] <= 0.0f) continue;
    picked = static_cast<std::int32_t>(i);
    left -= static_cast<double>(weights[i]);
    if (left < 0) break;
  }
  return picked;
}

std::int32_t DrawFrom(std::span<const float> logits, float largest, const SamplingOptions& options,
                      double uniform) {
  // A vocabulary's worth of memory, kept between draws.
  thread_local std::vector<float> weights;
  thread_local std::vector<Candidate> candidates;
  thread_local std::vector<double> sums;
  Weigh(logits, largest, options.temperature, weights);
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < weights.size()) {
    CollectTop(weights, static_cast<std::size_t>(options.top_k), candidates);
    if (options.top_p < 1.0f) CutAt(candidates, options.top_p * Sum(candidates));
  } else if (options.top_p < 1.0f) {
    CollectNucleus(weights, options.top_p, candidates);
  } else if (options.min_p > 0.0f) {
    Collect(weights, options.min_p, candidates);
  } else {
    return DrawFromAll(weights, uniform, sums);
  }
  if (options.min_p > 0.0f) {
    // The heaviest weighs 1, so weights are shares of it.
    std::erase_if(candidates, [&](const Candidate& c) { return c.value < options.min_p; });
  }
  return Draw(candidates, uniform);
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
    picked = DrawFrom(logits, logits[static_cast<std::size_t>(best)], options,
                      UniformAt(request.seed, request.position));
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
