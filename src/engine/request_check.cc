#include "engine/request_check.h"

#include "engine/sampler.h"

namespace tare::engine {
namespace {

constexpr int kMaxChoices = 128;
constexpr int kMaxLogprobs = 20;
constexpr std::size_t kMaxStops = 64;
constexpr std::size_t kMaxStopBytes = 1024;

Status CheckTokens(const std::vector<TokenId>& tokens, int vocab, const char* param) {
  for (const TokenId token : tokens) {
    if (ToInt(token) < 0 || ToInt(token) >= vocab) {
      return FailParam(param, "{} names token {}; the model's tokens are 0 to {}", param,
                       ToInt(token), vocab - 1);
    }
  }
  return {};
}

}  // namespace

Status CheckRequest(const GenerateRequest& request, const RequestLimits& limits) {
  if (request.prompt.empty()) return FailParam("prompt", "the prompt is empty");
  const auto most = static_cast<std::size_t>(limits.max_model_len - 1);
  if (request.prompt.size() > most) {
    return FailParam("prompt",
                     "the prompt has {} tokens; with this model's context length of {} it may have "
                     "at most {}: shorten it",
                     request.prompt.size(), limits.max_model_len, most);
  }
  TARE_RETURN_IF_ERROR(CheckTokens(request.prompt, limits.vocab, "prompt"));
  TARE_RETURN_IF_ERROR(CheckTokens(request.stop_tokens, limits.vocab, "stop_token_ids"));
  if (request.max_new_tokens) {
    const int wanted = *request.max_new_tokens;
    if (wanted < 1)
      return FailParam("max_tokens", "max_tokens is {}; it must be at least 1", wanted);
    const auto length = static_cast<std::int64_t>(request.prompt.size()) + wanted;
    if (limits.policy == ContextPolicy::kError && length > limits.max_model_len) {
      return FailParam("max_tokens",
                       "prompt ({} tokens) and max_tokens ({}) together pass the context length of "
                       "{}: ask for at most {} tokens",
                       request.prompt.size(), wanted, limits.max_model_len,
                       limits.max_model_len - static_cast<int>(request.prompt.size()));
    }
  }
  if (request.min_new_tokens < 0) {
    return FailParam("min_tokens", "min_tokens is {}; it must be at least 0",
                     request.min_new_tokens);
  }
  if (request.max_new_tokens && request.min_new_tokens > *request.max_new_tokens) {
    return FailParam("min_tokens", "min_tokens is {}, more than max_tokens ({})",
                     request.min_new_tokens, *request.max_new_tokens);
  }
  if (request.pinned_tokens < 0) {
    return FailParam("pinned_tokens", "pinned_tokens is {}; it must be at least 0",
                     request.pinned_tokens);
  }
  if (request.n < 1 || request.n > kMaxChoices) {
    return FailParam("n", "n is {}; it must be from 1 to {}", request.n, kMaxChoices);
  }
  if (request.logprobs && (*request.logprobs < 0 || *request.logprobs > kMaxLogprobs)) {
    return FailParam("top_logprobs", "top_logprobs is {}; it must be from 0 to {}",
                     *request.logprobs, kMaxLogprobs);
  }
  if (!request.stop.empty() && !limits.has_text) {
    return FailParam("stop",
                     "this model was loaded without its tokenizer, so stop strings cannot "
                     "be found: leave them out");
  }
  if (request.stop.size() > kMaxStops) {
    return FailParam("stop", "stop has {} strings; it may have at most {}", request.stop.size(),
                     kMaxStops);
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty()) return FailParam("stop", "stop holds an empty string: leave it out");
    if (stop.size() > kMaxStopBytes) {
      return FailParam("stop", "stop holds a string of {} bytes; the limit is {}", stop.size(),
                       kMaxStopBytes);
    }
  }
  return CheckSampling(request.sampling, limits.vocab);
}

}  // namespace tare::engine
