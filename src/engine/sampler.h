// From logits to the next token.
//
// Order, as vLLM and Hugging Face have it: penalties and bias, temperature, top_k, top_p (of what
// top_k left), min_p, then one draw. Log probabilities are those of the model's own distribution,
// before all of these.
//
// Randomness is a function of (seed, index of the token in the answer) and nothing else: no state,
// so neither the other sequences of a step nor a preemption changes what is drawn.
//
// Thread safety: Sample may run for different rows at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>

#include "base/result.h"
#include "base/types.h"
#include "engine/generate.h"

namespace tare::engine {

// Which tokens prompt and answer hold, for the penalties. Kept only when one of them is on.
class TokenHistory {
 public:
  void AddPrompt(std::span<const TokenId> tokens);
  void AddGenerated(TokenId token);

  struct Count {
    int generated = 0;
    bool in_prompt = false;
  };
  const std::unordered_map<std::int32_t, Count>& counts() const { return counts_; }

 private:
  std::unordered_map<std::int32_t, Count> counts_;
};

bool HasPenalties(const SamplingOptions& options);

struct SampleRequest {
  const SamplingOptions* options = nullptr;
  const TokenHistory* history = nullptr;  // null: no penalties
  std::span<const TokenId> forbidden;     // never picked: end tokens before min_new_tokens
  std::uint64_t seed = 0;
  std::uint64_t position = 0;   // of the token in the answer
  std::optional<int> logprobs;  // as GenerateRequest has it
};

// Picks a token; `logits` [vocab] are scratch afterwards. Nothing when no logit is finite, which
// means the weights are damaged.
std::optional<GeneratedToken> Sample(std::span<float> logits, const SampleRequest& request);

// The draw behind token `position` of an answer: uniform in [0, 1).
double UniformAt(std::uint64_t seed, std::uint64_t position);
// The seed of choice `choice` of a request; choice 0 has the request's own.
std::uint64_t ChoiceSeed(std::uint64_t seed, int choice);

// Names the parameter that is out of range, if any.
Status CheckSampling(const SamplingOptions& options, int vocab);

}  // namespace tare::engine
