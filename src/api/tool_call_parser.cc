#include "api/tool_call_parser.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "api/json_text.h"

namespace tare::api {

namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";

// How much of the end of `text` could be the beginning of `tag`.
std::size_t PartialTag(std::string_view text, std::string_view tag) {
  for (std::size_t size = std::min(text.size(), tag.size() - 1); size > 0; --size) {
    if (text.substr(text.size() - size) == tag.substr(0, size)) return size;
  }
  return 0;
}

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

bool ToolCallParser::AppendCall(Choice& choice, std::string_view json, ChatChunk& chunk,
                                std::string& calls) {
  dom::parser parser;
  dom::element root;
  std::string_view name;
  if (parser.parse(json.data(), json.size()).get(root) || root["name"].get(name)) return false;
  std::string arguments = "{}";
  dom::element given;
  if (!root["arguments"].get(given) || !root["parameters"].get(given)) {
    std::string_view text;
    arguments = given.get(text) ? simdjson::minify(given) : std::string(text);
  }
  calls.append(calls.empty() ? "" : ",");
  calls.append(fmt::format(R"({{"index":{},"id":)", choice.calls));
  AppendJsonString(calls, fmt::format("call_{}_{}_{}", id_, chunk.index, choice.calls));
  calls.append(R"(,"type":"function","function":{)");
  calls.append(R"("name":)");
  AppendJsonString(calls, name);
  calls.append(R"(,"arguments":)");
  AppendJsonString(calls, arguments);
  calls.append("}}");
  ++choice.calls;
  return true;
}

void ToolCallParser::Take(Choice& choice, ChatChunk& chunk) {
  const bool last = chunk.finish != FinishReason::kNone;
  std::string text, calls;
  const auto keep = [&](std::string_view piece) {
    // Blanks around calls are the template's, not the answer's.
    if (choice.calls > 0 && IsBlank(piece)) return;
    text.append(piece);
  };
  while (true) {
    if (!choice.in_call) {
      const std::size_t open = choice.pending.find(kOpen);
      if (open == std::string::npos) {
        const std::size_t held = last ? 0 : PartialTag(choice.pending, kOpen);
        keep(std::string_view(choice.pending).substr(0, choice.pending.size() - held));
        choice.pending.erase(0, choice.pending.size() - held);
        break;
      }
      std::string_view before = std::string_view(choice.pending).substr(0, open);
      if (!IsBlank(before)) keep(before);
      choice.pending.erase(0, open);
      choice.in_call = true;
    }
    const std::size_t close = choice.pending.find(kClose);
    if (close == std::string::npos && !last) break;
    // A model that ends right after its call often leaves the closing tag out.
    const std::size_t end = std::min(close, choice.pending.size());
    const std::string_view json =
        std::string_view(choice.pending).substr(kOpen.size(), end - kOpen.size());
    const std::size_t used = close == std::string::npos ? end : close + kClose.size();
    if (!AppendCall(choice, json, chunk, calls)) {
      text.append(choice.pending, 0, used);
    }
    choice.pending.erase(0, used);
    choice.in_call = false;
    if (choice.pending.empty()) break;
  }
  chunk.text = std::move(text);
  if (!calls.empty()) {
    if (!chunk.extra_json.empty()) chunk.extra_json.push_back(',');
    chunk.extra_json.append(R"("tool_calls":[)").append(calls).append("]");
  }
  if (chunk.finish == FinishReason::kStop && choice.calls > 0) {
    chunk.finish = FinishReason::kToolCalls;
  }
}

void ToolCallParser::Feed(ChatChunk& chunk) {
  Choice& choice = choices_[chunk.index];
  choice.pending.append(chunk.text);
  Take(choice, chunk);
}

}  // namespace tare::api
