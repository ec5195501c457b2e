// Members of streamed deltas beyond text (tool calls, reasoning), put together to what a whole
// message carries: strings are joined, tool calls merged by their index with arguments joined.
//
// Thread safety: one thread at a time.
// Source: OpenAI API reference (ChatCompletionMessageToolCallChunk).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tare::api {

class DeltaExtras {
 public:
  // `members` is JSON without the braces; what does not parse is left out.
  void Add(std::string_view members);
  // Appends `,"name":value` for each member.
  void Append(std::string& out) const;

 private:
  nlohmann::json members_ = nlohmann::json::object();
};

}  // namespace tare::api
