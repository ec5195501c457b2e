#include "api/wire_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "api/json_text.h"
#include "api/wire_error.h"

namespace tare::api {

namespace {

// What OpenAI sends for probabilities too small to write.
constexpr float kSmallestLogprob = -9999.0f;

void AppendLogprob(std::string& out, float logprob) {
  AppendJsonNumber(out, std::isfinite(logprob) ? logprob : kSmallestLogprob);
}

std::size_t CountCharacters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned>(c) & 0xC0u) != 0x80u;
  }));
}

void AppendTokenFields(std::string& out, std::string_view token, float logprob) {
  out.append(R"({"token":)");
  AppendJsonString(out, token);
  out.append(R"(,"logprob":)");
  AppendLogprob(out, logprob);
  out.append(R"(,"bytes":[)");
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (i > 0) out.push_back(',');
    out.append(std::to_string(static_cast<unsigned>(static_cast<unsigned char>(token[i]))));
  }
  out.push_back(']');
}

void AppendChatLogprobs(std::string& out, const std::vector<TokenLogprob>& tokens) {
  out.append(R"({"content":[)");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendTokenFields(out, tokens[i].token, tokens[i].logprob);
    out.append(R"(,"top_logprobs":[)");
    for (std::size_t j = 0; j < tokens[i].top.size(); ++j) {
      if (j > 0) out.push_back(',');
      AppendTokenFields(out, tokens[i].top[j].first, tokens[i].top[j].second);
      out.push_back('}');
    }
    out.append("]}");
  }
  out.append(R"(],"refusal":null})");
}

void AppendCompletionLogprobs(std::string& out, const std::vector<TokenLogprob>& tokens,
                              std::size_t offset) {
  std::string names, values, tops, offsets;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const char* comma = i == 0 ? "" : ",";
    names.append(comma);
    AppendJsonString(names, tokens[i].token);
    values.append(comma);
    AppendLogprob(values, tokens[i].logprob);
    tops.append(comma).append("{");
    for (std::size_t j = 0; j < tokens[i].top.size(); ++j) {
      if (j > 0) tops.push_back(',');
      AppendJsonString(tops, tokens[i].top[j].first);
      tops.push_back(':');
      AppendLogprob(tops, tokens[i].top[j].second);
    }
    tops.append("}");
    offsets.append(comma).append(std::to_string(offset));
    offset += CountCharacters(tokens[i].token);
  }
  fmt::format_to(
      std::back_inserter(out),
      R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})", names,
      values, tops, offsets);
}

void AppendLogprobs(std::string& out, bool chat, const std::vector<TokenLogprob>& tokens,
                    std::size_t offset) {
  out.append(R"(,"logprobs":)");
  if (tokens.empty()) {
    out.append("null");
  } else if (chat) {
    AppendChatLogprobs(out, tokens);
  } else {
    AppendCompletionLogprobs(out, tokens, offset);
  }
}

void AppendFinish(std::string& out, FinishReason finish) {
  out.append(R"(,"finish_reason":)");
  if (const char* word = ToString(finish)) {
    out.append("\"").append(word).append("\"");
  } else {
    out.append("null");
  }
}

void AppendUsage(std::string& out, const Usage& usage) {
  fmt::format_to(std::back_inserter(out),
                 R"("usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                 R"("prompt_tokens_details":{{"cached_tokens":{}}}}})",
                 usage.prompt_tokens, usage.completion_tokens,
                 usage.prompt_tokens + usage.completion_tokens, usage.cached_tokens);
}

void AppendHead(std::string& out, const AnswerHead& head, const char* object) {
  out.append(R"({"id":)");
  AppendJsonString(out, head.id);
  fmt::format_to(std::back_inserter(out), R"(,"object":"{}","created":{},"model":)", object,
                 head.created);
  AppendJsonString(out, head.model);
}

}  // namespace

EventWriter::EventWriter(const AnswerHead& head, bool include_usage)
    : chat_(head.chat), include_usage_(include_usage) {
  prefix_ = "data: ";
  AppendHead(prefix_, head, chat_ ? "chat.completion.chunk" : "text_completion");
  prefix_.append(R"(,"choices":[)");
}

void EventWriter::Begin(std::string& out, int choice) const {
  out.append(prefix_).append(R"({"index":)").append(std::to_string(choice));
}

// Closes choice, choices and event. With usage asked for, events without it say so.
void EventWriter::EndEvent(std::string& out) const {
  out.append(include_usage_ ? "}],\"usage\":null}\n\n" : "}]}\n\n");
}

void EventWriter::Role(std::string& out, int choice) const {
  if (!chat_) return;
  Begin(out, choice);
  out.append(R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null)");
  EndEvent(out);
}

void EventWriter::Chunk(std::string& out, const ChatChunk& chunk) {
  const std::size_t choice = static_cast<std::size_t>(std::max(chunk.index, 0));
  if (text_offsets_.size() <= choice) text_offsets_.resize(choice + 1);
  const bool has_extra = chat_ && !chunk.extra_json.empty();
  if (!chunk.text.empty() || !chunk.logprobs.empty() || has_extra) {
    Begin(out, chunk.index);
    out.append(chat_ ? R"(,"delta":{)" : R"(,"text":)");
    if (has_extra) out.append(chunk.extra_json);
    if (chat_ && (!chunk.text.empty() || !has_extra)) {
      out.append(has_extra ? R"(,"content":)" : R"("content":)");
    }
    if (!chat_ || !chunk.text.empty() || !has_extra) AppendJsonString(out, chunk.text);
    if (chat_) out.push_back('}');
    AppendLogprobs(out, chat_, chunk.logprobs, text_offsets_[choice]);
    AppendFinish(out, FinishReason::kNone);
    EndEvent(out);
    text_offsets_[choice] += CountCharacters(chunk.text);
  }
  if (chunk.finish != FinishReason::kNone) {
    Begin(out, chunk.index);
    out.append(chat_ ? R"(,"delta":{},"logprobs":null)" : R"(,"text":"","logprobs":null)");
    AppendFinish(out, chunk.finish);
    EndEvent(out);
  }
}

void EventWriter::UsageIfWanted(std::string& out, const Usage& usage) const {
  if (!include_usage_) return;
  out.append(prefix_).append("],");
  AppendUsage(out, usage);
  out.append("}\n\n");
}

void EventWriter::Done(std::string& out) const { out.append("data: [DONE]\n\n"); }

void EventWriter::Error(std::string& out, const tare::Error& error) const {
  out.append("data: ").append(ErrorBody(error)).append("\n\n");
}

void AnswerCollector::Add(ChatChunk chunk) {
  const std::size_t choice = static_cast<std::size_t>(std::max(chunk.index, 0));
  while (choices_.size() <= choice) {
    ChatChunk empty;
    empty.index = static_cast<int>(choices_.size());
    choices_.push_back(std::move(empty));
  }
  ChatChunk& target = choices_[choice];
  target.text.append(chunk.text);
  target.tokens += chunk.tokens;
  std::move(chunk.logprobs.begin(), chunk.logprobs.end(), std::back_inserter(target.logprobs));
  if (!chunk.extra_json.empty()) extras_[choice].Add(chunk.extra_json);
  if (chunk.finish != FinishReason::kNone) target.finish = chunk.finish;
}

std::string AnswerCollector::Write(const AnswerHead& head, const Usage& usage) const {
  std::string out;
  AppendHead(out, head, head.chat ? "chat.completion" : "text_completion");
  out.append(R"(,"choices":[)");
  for (const ChatChunk& choice : choices_) {
    if (choice.index > 0) out.push_back(',');
    out.append(R"({"index":)").append(std::to_string(choice.index));
    out.append(head.chat ? R"(,"message":{"role":"assistant","content":)" : R"(,"text":)");
    const auto extra = extras_.find(static_cast<std::size_t>(choice.index));
    if (extra != extras_.end() && choice.text.empty()) {
      out.append("null");  // a message of tool calls has no content
    } else {
      AppendJsonString(out, choice.text);
    }
    if (head.chat && extra != extras_.end()) extra->second.Append(out);
    if (head.chat) out.append(R"(,"refusal":null})");
    AppendLogprobs(out, head.chat, choice.logprobs, 0);
    AppendFinish(out, choice.finish);
    out.push_back('}');
  }
  out.append("],");
  AppendUsage(out, usage);
  out.push_back('}');
  return out;
}

}  // namespace tare::api
