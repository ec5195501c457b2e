#include "load/chunk.h"

#include <simdjson.h>

#include <algorithm>
#include <vector>

namespace tare::load {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

bool IsFilledString(const simdjson::simdjson_result<element>& value) {
  std::string_view text;
  return value.get(text) == simdjson::SUCCESS && !text.empty();
}

bool IsFilledArray(const simdjson::simdjson_result<element>& value) {
  array items;
  return value.get(items) == simdjson::SUCCESS && items.size() > 0;
}

int CountIn(const simdjson::simdjson_result<element>& value) {
  std::int64_t count = 0;
  if (value.get(count) != simdjson::SUCCESS) return 0;
  return static_cast<int>(std::clamp<std::int64_t>(count, 0, 1 << 30));
}

// "delta" of a stream, "message" of a whole answer.
bool SaysSomething(const object& delta) {
  return IsFilledString(delta["content"]) || IsFilledString(delta["reasoning_content"]) ||
         IsFilledString(delta["reasoning"]) || IsFilledArray(delta["tool_calls"]) ||
         IsFilledString(delta["refusal"]);
}

}  // namespace

struct ChunkReader::Impl {
  simdjson::dom::parser parser;
  std::vector<char> padded;
};

ChunkReader::ChunkReader() : impl_(std::make_unique<Impl>()) {}
ChunkReader::~ChunkReader() = default;

ChunkFacts ChunkReader::Read(std::string_view data) {
  if (data == "[DONE]") {
    ChunkFacts facts;
    facts.well_formed = facts.done = true;
    return facts;
  }
  return Parse(data);
}

ChunkFacts ChunkReader::ReadWhole(std::string_view body) { return Parse(body); }

ChunkFacts ChunkReader::Parse(std::string_view json) {
  ChunkFacts facts;
  // simdjson reads past the end, so the text goes where there is room.
  std::vector<char>& padded = impl_->padded;
  if (padded.size() < json.size() + simdjson::SIMDJSON_PADDING) {
    padded.resize(2 * json.size() + simdjson::SIMDJSON_PADDING);
  }
  std::copy(json.begin(), json.end(), padded.begin());
  object root;
  if (impl_->parser.parse(padded.data(), json.size(), /*realloc_if_needed=*/false).get(root) !=
      simdjson::SUCCESS) {
    return facts;
  }
  facts.well_formed = true;

  element error;
  if (root["error"].get(error) == simdjson::SUCCESS && !error.is_null()) {
    std::string_view message;
    if (error.get(message) == simdjson::SUCCESS ||
        error["message"].get(message) == simdjson::SUCCESS) {
      facts.error = std::string(message.substr(0, 300));
    }
    if (facts.error.empty()) facts.error = "an error without a message";
    return facts;
  }

  array choices;
  if (root["choices"].get(choices) == simdjson::SUCCESS) {
    for (const element choice : choices) {
      object delta;
      if (choice["delta"].get(delta) == simdjson::SUCCESS ||
          choice["message"].get(delta) == simdjson::SUCCESS) {
        facts.bears_tokens = facts.bears_tokens || SaysSomething(delta);
        std::string_view text;
        if (text_ && delta["content"].get(text) == simdjson::SUCCESS) facts.text += text;
      }
      if (IsFilledString(choice["text"])) facts.bears_tokens = true;
      if (IsFilledString(choice["finish_reason"])) facts.finished = true;
      array ids;
      if (choice["token_ids"].get(ids) == simdjson::SUCCESS) {
        facts.tokens += static_cast<int>(ids.size());
      }
    }
  }
  if (facts.bears_tokens && facts.tokens == 0) facts.tokens = 1;

  if (stamps_) {
    std::int64_t stamp = 0;
    if (root["tare_ns"].get(stamp) == simdjson::SUCCESS) facts.sent_ns = stamp;
  }
  object usage;
  if (root["usage"].get(usage) == simdjson::SUCCESS) {
    facts.has_usage = true;
    facts.prompt_tokens = CountIn(usage["prompt_tokens"]);
    facts.completion_tokens = CountIn(usage["completion_tokens"]);
    facts.cached_tokens = CountIn(usage["prompt_tokens_details"]["cached_tokens"]);
  }
  return facts;
}

}  // namespace tare::load
