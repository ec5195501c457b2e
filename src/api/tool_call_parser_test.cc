#include "api/tool_call_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace tare::api {
namespace {

struct Answer {
  std::string text;
  std::vector<nlohmann::json> calls;
  FinishReason finish = FinishReason::kNone;
};

// Feeds the text in pieces of `size` characters.
Answer Feed(const std::string& written, std::size_t size,
            FinishReason finish = FinishReason::kStop) {
  ToolCallParser parser("a\"1");
  Answer answer;
  for (std::size_t at = 0; at <= written.size(); at += size) {
    ChatChunk chunk;
    chunk.text = written.substr(at, size);
    if (at + size > written.size()) chunk.finish = finish;
    parser.Feed(chunk);
    answer.text += chunk.text;
    if (!chunk.extra_json.empty()) {
      const auto extra = nlohmann::json::parse("{" + chunk.extra_json + "}");
      for (const auto& call : extra["tool_calls"]) answer.calls.push_back(call);
    }
    answer.finish = chunk.finish;
  }
  return answer;
}

class ToolCallParserTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ToolCallParserTest, FindsCallsHoweverTheTextIsCut) {
  const Answer answer = Feed(
      "Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": "
      "{\"city\": \"Köln\", "
      "\"days\": "
      "2}}\n</tool_call>\n<tool_call>{\"name\":\"time\",\"arguments\":{}}</"
      "tool_call>",
      GetParam());
  EXPECT_EQ(answer.text, "Let me look.\n");
  ASSERT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.calls[0]["function"]["name"], "weather");
  EXPECT_EQ(answer.calls[0]["function"]["arguments"], R"({"city":"Köln","days":2})");
  EXPECT_EQ(answer.calls[0]["type"], "function");
  EXPECT_EQ(answer.calls[0]["index"], 0);
  EXPECT_EQ(answer.calls[1]["index"], 1);
  EXPECT_NE(answer.calls[0]["id"], answer.calls[1]["id"]);
  EXPECT_EQ(answer.finish, FinishReason::kToolCalls);
}

TEST_P(ToolCallParserTest, TextWithoutCallsIsTheSame) {
  for (const char* text : {"a < b, <tool_ca> and <tool", "", "<tool_calls>", "x<tool_call"}) {
    const Answer answer = Feed(text, GetParam());
    EXPECT_EQ(answer.text, text);
    EXPECT_TRUE(answer.calls.empty());
    EXPECT_EQ(answer.finish, FinishReason::kStop);
  }
}

TEST_P(ToolCallParserTest, WhatIsNoCallStaysText) {
  const std::string broken = "<tool_call>{\"name\": oops}</tool_call> and <tool_call>{\"nam";
  EXPECT_EQ(Feed(broken, GetParam()).text, broken);
  EXPECT_TRUE(Feed(broken, GetParam()).calls.empty());
}

TEST_P(ToolCallParserTest, TheClosingTagMayBeMissingAtTheEnd) {
  const Answer answer = Feed("<tool_call>{\"name\":\"f\",\"arguments\":\"{}\"}", GetParam());
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0]["function"]["arguments"], "{}");
  EXPECT_EQ(answer.text, "");
}

INSTANTIATE_TEST_SUITE_P(PieceSizes, ToolCallParserTest, ::testing::Values(1, 3, 7, 1000));

TEST(ToolCallParser, ALengthLimitStaysOne) {
  EXPECT_EQ(Feed("<tool_call>{\"name\":\"f\"}</tool_call> more", 5, FinishReason::kLength).finish,
            FinishReason::kLength);
}

}  // namespace
}  // namespace tare::api
