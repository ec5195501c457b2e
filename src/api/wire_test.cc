#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "api/json_text.h"
#include "api/wire_error.h"
#include "api/wire_writer.h"

namespace tare::api {
namespace {

using nlohmann::json;

const AnswerHead kHead{"chatcmpl-1", "m\"1", 1700000000, true};

// The JSON of each event; "[DONE]" as a string.
std::vector<json> Events(const std::string& stream) {
  std::vector<json> events;
  std::size_t begin = 0;
  while (begin < stream.size()) {
    const std::size_t end = stream.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos);
    if (end == std::string::npos) break;
    const std::string event = stream.substr(begin, end - begin);
    EXPECT_EQ(event.substr(0, 6), "data: ");
    const std::string data = event.substr(6);
    events.push_back(data == "[DONE]" ? json(data) : json::parse(data));
    begin = end + 2;
  }
  return events;
}

TEST(EventWriter, MakesTheEventsOfAChat) {
  EventWriter writer(kHead, true);
  std::string out;
  writer.Role(out, 0);
  writer.Chunk(out, {0, "Hé\n\"", 1, {}, FinishReason::kNone});
  writer.Chunk(out, {0, "", 1, {}, FinishReason::kNone});
  writer.Chunk(out, {0, "!", 1, {}, FinishReason::kStop});
  writer.UsageIfWanted(out, {7, 3, 2});
  writer.Done(out);
  const auto events = Events(out);
  ASSERT_EQ(events.size(), 6u) << "no event for a chunk without text";
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["model"], "m\"1");
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(events[0]["usage"].is_null());
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "Hé\n\"");
  EXPECT_TRUE(events[1]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(events[2]["choices"][0]["delta"]["content"], "!");
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(events[3]["choices"][0]["delta"].empty());
  EXPECT_TRUE(events[4]["choices"].empty());
  EXPECT_EQ(events[4]["usage"]["total_tokens"], 10);
  EXPECT_EQ(events[4]["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
  EXPECT_EQ(events[5], "[DONE]");
}

TEST(EventWriter, MakesTheEventsOfACompletion) {
  EventWriter writer({"cmpl-1", "m", 1, false}, false);
  std::string out;
  writer.Role(out, 0);
  writer.Chunk(out, {1, "日本", 1, {{"日本", -0.5f, {{"日本", -0.5f}, {"x", -2}}}}});
  writer.Chunk(out, {1, "a", 1, {{"a", -1, {}}}, FinishReason::kLength});
  writer.UsageIfWanted(out, {});
  const auto events = Events(out);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_FALSE(events[0].contains("usage"));
  EXPECT_EQ(events[0]["choices"][0]["index"], 1);
  EXPECT_EQ(events[0]["choices"][0]["logprobs"]["top_logprobs"][0]["x"], -2);
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["text_offset"], json({2}));
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "length");
}

TEST(EventWriter, ErrorsAreEvents) {
  EventWriter writer(kHead, false);
  std::string out;
  writer.Error(out, {ErrorKind::kNetwork, "upstream left", "", kStreamInterrupted});
  EXPECT_EQ(Events(out)[0]["error"]["code"], "stream_interrupted");
}

TEST(AnswerCollector, JoinsChunksOfInterleavedChoices) {
  AnswerCollector collector;
  collector.Add({1, "b", 1, {}, FinishReason::kNone});
  collector.Add({0, "a", 1, {{"a", -std::numeric_limits<float>::infinity(), {{"b", -1}}}}});
  collector.Add({1, "c", 1, {}, FinishReason::kLength});
  collector.Add({0, "", 0, {}, FinishReason::kStop});
  const json answer = json::parse(collector.Write(kHead, {1, 2, 0}));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "a");
  EXPECT_EQ(answer["choices"][0]["logprobs"]["content"][0]["logprob"], -9999);
  EXPECT_EQ(answer["choices"][0]["logprobs"]["content"][0]["bytes"], json({97}));
  EXPECT_EQ(answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"][0]["token"], "b");
  EXPECT_EQ(answer["choices"][1]["message"]["content"], "bc");
  EXPECT_EQ(answer["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 2);
}

TEST(JsonText, RoundTripsAnyBytes) {
  rc::check("any bytes become a JSON string of the same text, repaired", [](std::string bytes) {
    std::string out;
    AppendJsonString(out, bytes);
    RC_ASSERT(json::parse(out).get<std::string>() == ReplaceIllFormed(bytes));
  });
  rc::check("well-formed text stays as it is", [] {
    const auto text = *rc::gen::container<std::string>(rc::gen::inRange<char>(0, 127));
    RC_ASSERT(ReplaceIllFormed(text + "é日😀") == text + "é日😀");
  });
}

TEST(JsonText, ReplacesIllFormedUtf8) {
  EXPECT_EQ(ReplaceIllFormed("a\xFFz"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(ReplaceIllFormed("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD") << "overlong";
  EXPECT_EQ(ReplaceIllFormed("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD")
      << "surrogate";
  EXPECT_EQ(ReplaceIllFormed("\xE6\x97"), "\xEF\xBF\xBD\xEF\xBF\xBD") << "half a character";
}

TEST(WireError, CarriesKindParamAndCode) {
  const Error error{ErrorKind::kInvalidArgument, "too \"long\"", "messages",
                    kContextLengthExceeded};
  const json body = json::parse(ErrorBody(error))["error"];
  EXPECT_EQ(HttpStatus(error), 400);
  EXPECT_EQ(body["message"], "too \"long\"");
  EXPECT_EQ(body["type"], "invalid_request_error");
  EXPECT_EQ(body["param"], "messages");
  EXPECT_EQ(body["code"], "context_length_exceeded");
  EXPECT_TRUE(json::parse(ErrorBody(413, "x"))["error"]["param"].is_null());
  EXPECT_EQ(HttpStatus({ErrorKind::kUnavailable, "", "", kInvalidApiKey}), 401);
  EXPECT_EQ(HttpStatus({ErrorKind::kUnavailable, "", "", ""}), 503);
}

}  // namespace
}  // namespace tare::api
