#include "api/upstream_wire.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "api/json_members.h"
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

// What shapes an answer from its first token on (vLLM's, SGLang's and llama-server's words), or
// asks for more than text: a second half would not be that of the first.
constexpr std::array<std::string_view, 13> kNoContinuation = {
    "guided_json", "guided_regex",    "guided_choice",  "guided_grammar", "structured_outputs",
    "json_schema", "regex",           "ebnf",           "grammar",        "structural_tag",
    "functions",   "prompt_logprobs", "use_beam_search"};
// min_tokens may be more than what is left, and was meant for the whole answer.
constexpr std::array<std::string_view, 5> kReplacedInContinuation = {
    "continue_final_message", "add_generation_prompt", "min_tokens", "max_tokens",
    "max_completion_tokens"};

template <std::size_t N>
bool Contains(const std::array<std::string_view, N>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

bool IsReplaced(std::string_view key) {
  return key == "model" || key == "stream" || key == "stream_options";
}

}  // namespace

Result<std::string> UpstreamBody(const ChatRequest& request, std::string_view model,
                                 bool want_usage) {
  std::string begin = R"({"model":)";
  AppendJsonString(begin, model);
  const bool streams = !request.embeddings;
  if (streams) begin.append(R"(,"stream":true)");
  if (streams && want_usage) begin.append(R"(,"stream_options":{"include_usage":true})");
  if (const auto members = TopLevelMembers(request.wire_body)) {
    // A prompt of megabytes is copied once and not taken apart.
    begin.reserve(begin.size() + request.wire_body.size() + members->size() + 1);
    for (const JsonMember& member : *members) {
      if (IsReplaced(member.key)) continue;
      begin.append(",").append(member.text);
    }
    begin.push_back('}');
    return begin;
  }
  dom::parser parser;
  dom::object object;
  if (parser.parse(request.wire_body).get(object)) {
    return Fail(ErrorKind::kInternal, "the request's own body is lost; cannot pass it on");
  }
  std::string out = std::move(begin);
  out.reserve(out.size() + request.wire_body.size());
  for (const auto [key, value] : object) {
    if (IsReplaced(key)) continue;
    out.push_back(',');
    AppendJsonString(out, key);
    out.push_back(':');
    out.append(simdjson::minify(value));
  }
  out.push_back('}');
  return out;
}

Result<std::string> ContinuationBody(std::string_view wire_body, std::string_view written,
                                     std::optional<int> tokens_left) {
  const auto members = TopLevelMembers(wire_body);
  if (!members) return Fail(ErrorKind::kInternal, "the request's own body cannot be extended");
  std::string out = "{";
  out.reserve(wire_body.size() + written.size() + 128);
  const auto separate = [&out] {
    if (out.size() > 1) out.push_back(',');
  };
  int extended = 0;
  for (const auto& [key, text] : *members) {
    if (Contains(kNoContinuation, key) && ValueOf(text) != "null") {
      return Fail(ErrorKind::kUnsupported, "an answer with '{}' cannot go on elsewhere", key);
    }
    if (Contains(kReplacedInContinuation, key)) continue;
    separate();
    if (key != "messages" && key != "prompt") {
      out.append(text);
      continue;
    }
    const bool chat = key == "messages";
    const char end = chat ? ']' : '"';
    if (++extended > 1 || !ValueOf(text).starts_with(chat ? '[' : '"')) {
      return Fail(ErrorKind::kInternal, "the request's {} cannot be extended", key);
    }
    const std::string_view before = text.substr(0, text.rfind(end));
    if (chat && before[before.find_last_not_of(kJsonBlanks)] == '[') {
      return Fail(ErrorKind::kInternal, "the request has no message to go on from");
    }
    out.append(before);
    std::string quoted;
    AppendJsonString(quoted, written);
    if (chat) {
      out.append(R"(,{"role":"assistant","content":)").append(quoted).append("}]");
      out.append(R"(,"continue_final_message":true,"add_generation_prompt":false)");
    } else {
      out.append(quoted, 1);
    }
  }
  if (extended == 0) return Fail(ErrorKind::kInternal, "the request has nothing to extend");
  separate();
  if (tokens_left) {
    const bool newer = std::any_of(members->begin(), members->end(), [](const JsonMember& member) {
      return member.key == "max_completion_tokens" && ValueOf(member.text) != "null";
    });
    out.append(
        fmt::format(R"("{}":{})", newer ? "max_completion_tokens" : "max_tokens", *tokens_left));
  } else {
    out.pop_back();
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
