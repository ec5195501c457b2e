#include "gateway/continuation.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "api/upstream_wire.h"

namespace tare::gateway {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool IsOneText(const api::ChatRequest& request) {
  // Token ids cannot be extended by a text, an answer begun by the client has no end to add to.
  return request.stream && request.n == 1 && request.prompt_tokens.empty() &&
         request.answer_prefix.empty() && request.tools_json.empty() && !request.logprobs &&
         request.unsupported.empty();
}

}  // namespace

Continuation::Continuation(const api::ChatRequest& request, bool wanted)
    : possible_(wanted && IsOneText(request)) {}

void Continuation::Join(api::ChatChunk& chunk) {
  if (!possible_) return;
  if (!blanks_.empty() && !chunk.text.empty()) {
    const auto [blank, text] =
        std::mismatch(blanks_.begin(), blanks_.end(), chunk.text.begin(), chunk.text.end());
    const bool more = blank != blanks_.end() && text == chunk.text.end();
    chunk.text.erase(chunk.text.begin(), text);
    blanks_.erase(blanks_.begin(), blank);
    if (!more) blanks_.clear();
    if (chunk.text.empty()) repeated_tokens_ += std::exchange(chunk.tokens, 0);
  }
  written_ += chunk.text;
  written_tokens_ += chunk.tokens;
  // Tool calls and reasoning are no part of a text that could be gone on from; after the finish
  // there is nothing left.
  if (!chunk.extra_json.empty() || chunk.finish != api::FinishReason::kNone) possible_ = false;
}

Result<std::shared_ptr<const api::ChatRequest>> Continuation::Rest(
    const api::ChatRequest& request) {
  const std::size_t end = written_.find_last_not_of(kBlanks);
  if (!possible_ || end == std::string::npos) {
    return Fail(ErrorKind::kUnsupported, "there is no text to go on from");
  }
  std::optional<int> left;
  if (request.max_tokens) {
    left = *request.max_tokens - written_tokens_;
    if (*left <= 0) return Fail(ErrorKind::kUnsupported, "the answer has its length already");
  }
  const std::string_view text = std::string_view(written_).substr(0, end + 1);
  auto rest = std::make_shared<api::ChatRequest>(request);
  TARE_TRY(rest->wire_body, api::ContinuationBody(request.wire_body, text, left));
  if (request.messages_json.empty()) {
    rest->prompt += text;
  } else {
    rest->answer_prefix = text;
  }
  rest->max_tokens = left;
  rest->sampling.min_tokens = 0;
  blanks_ = written_.substr(end + 1);
  carried_tokens_ = written_tokens_;
  repeated_tokens_ = 0;
  return rest;
}

api::Usage Continuation::Whole(api::Usage last) const {
  const int read = carried_tokens_ - repeated_tokens_;
  last.completion_tokens += read;
  last.prompt_tokens = std::max(0, last.prompt_tokens - read);
  last.cached_tokens = std::min(last.cached_tokens, last.prompt_tokens);
  return last;
}

}  // namespace tare::gateway
