#include "api/upstream_wire.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>

#include "api/json_text.h"
#include "api/wire_error.h"

namespace tare::api {

namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kShownErrorBytes = 300;

ErrorKind KindOfStatus(int status) {
  switch (status) {
    case 404:
      return ErrorKind::kNotFound;
    case 408:
    case 504:
      return ErrorKind::kDeadlineExceeded;
    case 429:
    case 503:
      return ErrorKind::kUnavailable;
    default:
      return status >= 500 ? ErrorKind::kNetwork : ErrorKind::kInvalidArgument;
  }
}

FinishReason ReadFinish(std::string_view word) {
  if (word == "length" || word == "max_tokens") return FinishReason::kLength;
  if (word == "tool_calls" || word == "function_call") return FinishReason::kToolCalls;
  if (word == "content_filter") return FinishReason::kContentFilter;
  if (word == "error") return FinishReason::kError;
  if (word == "cancelled" || word == "abort") return FinishReason::kCancelled;
  return FinishReason::kStop;
}

void ReadDelta(dom::object delta, ChatChunk& chunk) {
  for (const auto [key, value] : delta) {
    if (value.is_null() || key == "role") continue;
    std::string_view text;
    if (key == "content") {
      if (!value.get(text)) chunk.text.assign(text);
      continue;
    }
    if (!chunk.extra_json.empty()) chunk.extra_json.push_back(',');
    AppendJsonString(chunk.extra_json, key);
    chunk.extra_json.push_back(':');
    chunk.extra_json.append(simdjson::minify(value));
  }
}

float ReadLogprob(dom::element entry) {
  double logprob = 0;
  return entry["logprob"].get(logprob) ? 0.0f : static_cast<float>(logprob);
}

void ReadLogprobs(dom::element logprobs, ChatChunk& chunk) {
  dom::array content;
  if (logprobs["content"].get(content)) return;
  for (const dom::element entry : content) {
    std::string_view token;
    if (entry["token"].get(token)) continue;
    TokenLogprob& out = chunk.logprobs.emplace_back();
    out.token.assign(token);
    out.logprob = ReadLogprob(entry);
    dom::array tops;
    if (entry["top_logprobs"].get(tops)) continue;
    for (const dom::element top : tops) {
      if (!top["token"].get(token)) out.top.emplace_back(token, ReadLogprob(top));
    }
  }
}

ChatChunk ReadChoice(dom::element choice) {
  ChatChunk chunk;
  std::int64_t index = 0;
  if (!choice["index"].get(index))
    chunk.index = static_cast<int>(std::clamp<std::int64_t>(index, 0, 127));
  dom::object delta;
  std::string_view text;
  if (!choice["delta"].get(delta) || !choice["message"].get(delta)) {
    ReadDelta(delta, chunk);
  } else if (!choice["text"].get(text)) {
    chunk.text.assign(text);
  }
  dom::element logprobs;
  if (!choice["logprobs"].get(logprobs) && logprobs.is_object()) ReadLogprobs(logprobs, chunk);
  if (!choice["finish_reason"].get(text) && !text.empty()) chunk.finish = ReadFinish(text);
  const bool carries = !chunk.text.empty() || !chunk.extra_json.empty();
  chunk.tokens = carries ? std::max<int>(1, static_cast<int>(chunk.logprobs.size())) : 0;
  return chunk;
}

int Count(dom::element object, const char* key) {
  std::int64_t value = 0;
  if (object[key].get(value)) return 0;
  return static_cast<int>(std::clamp<std::int64_t>(value, 0, 1 << 30));
}

std::optional<Usage> ReadUsage(dom::element root) {
  dom::element usage;
  if (root["usage"].get(usage) || !usage.is_object()) return std::nullopt;
  Usage out{Count(usage, "prompt_tokens"), Count(usage, "completion_tokens"), 0};
  dom::element details;
  if (!usage["prompt_tokens_details"].get(details) && details.is_object()) {
    out.cached_tokens = Count(details, "cached_tokens");
  }
  return out;
}

// {"error":{"message",...}}, {"error":"..."} or {"message"|"detail":"..."}.
void ReadErrorObject(dom::element root, Error& error) {
  std::string_view text;
  dom::element inner;
  if (!root["error"].get(inner)) {
    if (!inner.get(text)) error.message.assign(text);
    if (!inner["message"].get(text)) error.message.assign(text);
    if (!inner["code"].get(text)) error.code.assign(text);
    if (!inner["param"].get(text)) error.param.assign(text);
    return;
  }
  for (const char* key : {"message", "detail"}) {
    if (!root[key].get(text)) error.message.assign(text);
  }
}

}  // namespace

Result<std::string> UpstreamBody(const ChatRequest& request, std::string_view model,
                                 bool want_usage) {
  dom::parser parser;
  dom::object object;
  if (parser.parse(request.wire_body).get(object)) {
    return Fail(ErrorKind::kInternal, "the request's own body is lost; cannot pass it on");
  }
  std::string out;
  out.reserve(request.wire_body.size() + 64);
  out.append(R"({"model":)");
  AppendJsonString(out, model);
  out.append(R"(,"stream":true)");
  if (want_usage) out.append(R"(,"stream_options":{"include_usage":true})");
  for (const auto [key, value] : object) {
    if (key == "model" || key == "stream" || key == "stream_options") continue;
    out.push_back(',');
    AppendJsonString(out, key);
    out.push_back(':');
    out.append(simdjson::minify(value));
  }
  out.push_back('}');
  return out;
}

Result<StreamEvent> ReadStreamEvent(std::string_view data) {
  StreamEvent event;
  if (data == "[DONE]") {
    event.done = true;
    return event;
  }
  thread_local dom::parser parser;
  dom::element root;
  if (const auto error = parser.parse(data.data(), data.size()).get(root)) {
    return Fail(ErrorKind::kCorrupt, "the server sent an event that is not JSON ({})",
                simdjson::error_message(error));
  }
  dom::element inner;
  if (!root["error"].get(inner) && !inner.is_null()) {
    event.error = Error{ErrorKind::kNetwork, "the server reported a failure", "", ""};
    ReadErrorObject(root, *event.error);
    return event;
  }
  dom::array choices;
  if (!root["choices"].get(choices)) {
    for (const dom::element choice : choices) event.chunks.push_back(ReadChoice(choice));
  }
  event.usage = ReadUsage(root);
  return event;
}

Error ReadUpstreamError(int status, std::string_view body) {
  Error error{KindOfStatus(status), "", "", ""};
  dom::parser parser;
  dom::element root;
  if (!parser.parse(body.data(), body.size()).get(root)) ReadErrorObject(root, error);
  if (error.message.empty()) {
    error.message = fmt::format("the server answered with status {}: {}", status,
                                ReplaceIllFormed(body.substr(0, kShownErrorBytes)));
  }
  if (status == 429 && error.code.empty()) error.code = kRateLimitExceeded;
  return error;
}

}  // namespace tare::api
