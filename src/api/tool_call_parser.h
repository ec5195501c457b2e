// Finds the tool calls in what a local model writes, and turns them into the wire's `tool_calls`.
//
// The format is the one Hermes, Qwen and SmolLM3 templates teach: <tool_call>{"name": ...,
// "arguments": {...}}</tool_call>, any number of times, with text before and between. Text is
// passed on as soon as it cannot be the beginning of a tag. What looks like a call but is no JSON
// of that shape stays text: nothing a model wrote is ever lost.
//
// Thread safety: plain values, one thread at a time.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "api/chat.h"

namespace tare::api {

class ToolCallParser {
 public:
  // `id` makes the calls' ids unlike those of other answers.
  explicit ToolCallParser(std::string id) : id_(std::move(id)) {}

  // Replaces the chunk's text by what is text of it, adds complete calls to extra_json, and makes a
  // stop after calls a kToolCalls.
  void Feed(ChatChunk& chunk);

 private:
  struct Choice {
    std::string pending;  // not known yet to be text, or the beginning of a call
    bool in_call = false;
    int calls = 0;
  };
  void Take(Choice& choice, ChatChunk& chunk);
  bool AppendCall(Choice& choice, std::string_view json, ChatChunk& chunk, std::string& calls);

  const std::string id_;
  std::map<int, Choice> choices_;
};

}  // namespace tare::api
