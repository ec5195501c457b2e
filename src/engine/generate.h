// What the engine is asked and what it answers, in tokens and text; it knows nothing of HTTP.
// Field meanings follow the OpenAI API reference where it has them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace tare::model {
class LoraAdapter;
}

namespace tare::engine {

// How a token is picked from the logits. The defaults sample from the model's own distribution.
struct SamplingOptions {
  float temperature = 1.0f;  // 0: always the most likely token
  float top_p = 1.0f;
  int top_k = 0;  // 0: off
  float min_p = 0.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  float repetition_penalty = 1.0f;  // over prompt and answer; 1: off
  std::vector<std::pair<TokenId, float>> logit_bias;
};

// Interactive requests go first; a batch request that has waited long enough counts as one.
enum class Tier { kInteractive, kBatch };

// What happens when a sequence reaches the context length.
enum class ContextPolicy {
  kError,  // a request that could reach it is refused
  kStop,   // the answer ends there, finish reason "length"
  kRing,   // the oldest tokens are forgotten, the pinned first ones kept; goes on
};

struct GenerateRequest {
  std::vector<TokenId> prompt;
  // With the ring context policy these first tokens (the system prompt) are never recycled.
  int pinned_tokens = 0;
  std::optional<int> max_new_tokens;  // absent: up to the context length
  int min_new_tokens = 0;             // no end-of-text token and no stop string before
  bool ignore_eos = false;
  std::vector<std::string> stop;     // the answer ends before the first of these
  std::vector<TokenId> stop_tokens;  // besides the model's end-of-text tokens
  SamplingOptions sampling;
  std::optional<std::uint64_t> seed;  // same request and seed: same tokens. Absent: drawn anew
  std::optional<int> logprobs;        // alternatives listed per token (0: only the token's own)
  int n = 1;                          // choices; they share the prompt's pages
  Tier tier = Tier::kInteractive;
  std::optional<Nanos> deadline;  // on the engine's clock; past it the request fails
  std::string cache_salt;         // requests share cached prefixes only under the same salt
  bool use_prefix_cache = true;
  std::shared_ptr<const model::LoraAdapter> adapter;  // made for the engine's model; null: none
  bool speculate = true;  // let the engine guess tokens ahead; the answer is the same either way
};

enum class FinishReason { kNone, kStop, kLength, kCancelled };
// "stop", "length", "cancelled"; "none" for kNone.
const char* ToString(FinishReason reason);

struct GeneratedToken {
  TokenId id{};
  float logprob = 0.0f;                        // natural logarithm; 0 unless asked for
  std::vector<std::pair<TokenId, float>> top;  // most likely first; empty unless asked for
};

// A piece of one choice's answer. `text` is what `tokens` and text held back before amount to; it
// may be empty while a character is incomplete or a stop string may be beginning.
struct GenerateChunk {
  int choice = 0;
  std::string text;
  std::vector<GeneratedToken> tokens;
  FinishReason finish = FinishReason::kNone;  // set on a choice's last chunk
};

struct GenerateUsage {
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of prompt_tokens: taken from the prefix cache
  int generated_tokens = 0;
  int drafted_tokens = 0;   // guesses verified
  int accepted_drafts = 0;  // of them right, and so part of generated_tokens
  Nanos queued{};           // from Submit to the first step that computed for it
  Nanos first_token{};      // from Submit to the first sampled token
  Nanos total{};            // from Submit to the end
};

// Receives one answer. Calls come one at a time from the engine's step thread and must not block
// or throw: OnTokens zero or more times, then exactly one of OnDone and OnError, also after Cancel.
class GenerateSink {
 public:
  virtual ~GenerateSink() = default;
  virtual void OnTokens(GenerateChunk chunk) = 0;
  virtual void OnDone(const GenerateUsage& usage) = 0;
  virtual void OnError(Error error) = 0;
};

}  // namespace tare::engine
