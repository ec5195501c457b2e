#include "api/upstream_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <nlohmann/json.hpp>

#include "api/wire_error.h"
#include "api/wire_writer.h"

namespace tare::api {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(UpstreamBody, KeepsEverythingButModelAndStreaming) {
  ChatRequest request;
  request.wire_body =
      R"({"model":"a","stream":false,"stream_options":{"x":1},"messages":[],"custom":{"y":[1.5]}})";
  const json body = json::parse(*UpstreamBody(request, "b\"c", true));
  EXPECT_EQ(body["model"], "b\"c");
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["stream_options"], json({{"include_usage", true}}));
  EXPECT_EQ(body["custom"]["y"][0], 1.5);
  EXPECT_FALSE(json::parse(*UpstreamBody(request, "b", false)).contains("stream_options"));
  request.wire_body = "";
  EXPECT_FALSE(UpstreamBody(request, "b", true));
}

TEST(UpstreamBody, CannotBeTalkedIntoAnotherModel) {
  for (const char* body :
       {R"({"m\u006fdel":"secret","messages":["a"]})", R"({"model":"x","model":"secret"})",
        R"({ "x" : "}" , "model" : "secret", "y":{"model":"kept"} })", R"({"a\"b":1,"model":2})"}) {
    ChatRequest request;
    request.wire_body = body;
    const auto made = UpstreamBody(request, "mine", false);
    ASSERT_TRUE(made);
    int models = 0;
    const json read = json::parse(*made, [&](int depth, json::parse_event_t event, json& value) {
      if (depth == 1 && event == json::parse_event_t::key && value == "model") ++models;
      return true;
    });
    EXPECT_EQ(models, 1) << *made;
    EXPECT_EQ(read["model"], "mine") << *made;
  }
}

// Any object, whatever is in its strings, comes through but for what is replaced.
TEST(UpstreamBody, KeepsEveryOtherMember) {
  EXPECT_TRUE(rc::check([](const std::map<std::string, std::string>& in) {
    json body = json::object();
    for (const auto& [key, value] : in) body[key] = {value, {{key, {1, -2.5, nullptr}}}};
    body["messages"] = {{{"content", "{\"}],\\"}}};
    ChatRequest request;
    request.wire_body = body.dump(1, ' ', false, json::error_handler_t::replace);
    const json made = json::parse(*UpstreamBody(request, "m", true));
    json wanted = json::parse(request.wire_body);
    wanted["model"] = "m";
    wanted["stream"] = true;
    wanted["stream_options"] = {{"include_usage", true}};
    RC_ASSERT(made == wanted);
  }));
}

TEST(ReadStreamEvent, ReadsWhatServersSend) {
  auto event = ReadStreamEvent(
      R"({"choices":[{"index":1,"delta":{"role":"assistant","content":"hi","reasoning_content":"so"},)"
      R"("logprobs":{"content":[{"token":"hi","logprob":-0.5,"top_logprobs":[{"token":"x","logprob":-1}]}]},)"
      R"("finish_reason":null}],"usage":null})");
  ASSERT_TRUE(event) << event.error().message;
  ASSERT_EQ(event->chunks.size(), 1u);
  EXPECT_EQ(event->chunks[0].index, 1);
  EXPECT_EQ(event->chunks[0].text, "hi");
  EXPECT_EQ(event->chunks[0].extra_json, R"("reasoning_content":"so")");
  EXPECT_EQ(event->chunks[0].tokens, 1);
  EXPECT_EQ(event->chunks[0].logprobs[0].top[0].first, "x");
  EXPECT_FALSE(event->usage);

  EXPECT_TRUE(ReadStreamEvent("[DONE]")->done);
  EXPECT_EQ(
      ReadStreamEvent(R"({"choices":[{"text":"a","finish_reason":"length"}]})")->chunks[0].finish,
      FinishReason::kLength);
  event = ReadStreamEvent(
      R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}})");
  EXPECT_EQ(event->usage->cached_tokens, 3);
  EXPECT_THAT(ReadStreamEvent(R"({"error":{"message":"boom","code":"x"}})")->error->message,
              "boom");
  EXPECT_FALSE(ReadStreamEvent("{\"choices\":[{"));
}

TEST(ReadStreamEvent, SurvivesAnyBytes) {
  rc::check("events are read or refused", [](const std::string& bytes) {
    (void)ReadStreamEvent(bytes);
    (void)ReadUpstreamError(500, bytes);
    (void)ReadStreamEvent("{\"choices\":[{\"delta\":" + bytes + "}]}");
  });
}

TEST(ReadUpstreamError, UnderstandsTheCommonShapes) {
  const Error error = ReadUpstreamError(
      400,
      R"({"error":{"message":"too long","code":"context_length_exceeded","param":"messages"}})");
  EXPECT_EQ(error.kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(error.code, kContextLengthExceeded);
  EXPECT_EQ(error.param, "messages");
  EXPECT_EQ(ReadUpstreamError(400, R"({"detail":"no"})").message, "no");
  EXPECT_EQ(ReadUpstreamError(400, R"({"error":"no"})").message, "no");
  EXPECT_THAT(ReadUpstreamError(502, "<html>").message, HasSubstr("502: <html>"));
  EXPECT_EQ(ReadUpstreamError(429, "").code, kRateLimitExceeded);
  EXPECT_EQ(HttpStatus(ReadUpstreamError(500, "")), 502);
}

TEST(AnswerCollector, PutsToolCallsTogether) {
  AnswerCollector collector;
  for (
      const char* delta :
      {R"("tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}])",
       R"("tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}])",
       R"("tool_calls":[{"index":0,"function":{"arguments":":1}"}}])", R"("reasoning_content":"a")",
       R"("reasoning_content":"b")", "broken"}) {
    ChatChunk chunk;
    chunk.extra_json = delta;
    collector.Add(chunk);
  }
  ChatChunk finish;
  finish.finish = FinishReason::kToolCalls;
  collector.Add(finish);
  const json message = json::parse(collector.Write({"i", "m", 1, true}, {}))["choices"][0];
  EXPECT_EQ(message["finish_reason"], "tool_calls");
  EXPECT_TRUE(message["message"]["content"].is_null());
  EXPECT_EQ(message["message"]["reasoning_content"], "ab");
  EXPECT_EQ(
      message["message"]["tool_calls"],
      json::parse(
          R"([{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}])"));
}

TEST(EventWriter, PassesDeltasOn) {
  EventWriter writer({"i", "m", 1, true}, false);
  ChatChunk chunk;
  chunk.extra_json = R"("reasoning_content":"so")";
  std::string out;
  writer.Chunk(out, chunk);
  json delta = json::parse(out.substr(6))["choices"][0]["delta"];
  EXPECT_EQ(delta, json({{"reasoning_content", "so"}}));
  chunk.text = "t";
  out.clear();
  writer.Chunk(out, chunk);
  delta = json::parse(out.substr(6))["choices"][0]["delta"];
  EXPECT_EQ(delta, json({{"reasoning_content", "so"}, {"content", "t"}}));
}

TEST(ContinuationBody, AddsWhatWasWrittenAndShortensTheRest) {
  const auto body = ContinuationBody(
      R"({"model":"m","messages":[{"role":"user","content":"]}"}],"max_tokens":60,"min_tokens":50,)"
      R"("temperature":0.5,"custom":{"messages":[]}})",
      "so \"far\"\n", 20);
  ASSERT_TRUE(body) << body.error().message;
  const json read = json::parse(*body);
  EXPECT_EQ(read["messages"], json::parse(R"([{"role":"user","content":"]}"},)"
                                          R"({"role":"assistant","content":"so \"far\"\n"}])"));
  EXPECT_EQ(read["max_tokens"], 20);
  EXPECT_EQ(read["continue_final_message"], true);
  EXPECT_EQ(read["add_generation_prompt"], false);
  EXPECT_EQ(read["custom"], json::parse(R"({"messages":[]})"));
  EXPECT_FALSE(read.contains("min_tokens"));
}

TEST(ContinuationBody, ExtendsACompletionsPrompt) {
  const auto body = ContinuationBody(R"({"prompt" : "a \"b\"\\" ,"model":"m","max_tokens":null})",
                                     " \"c\"\n", 16);
  ASSERT_TRUE(body) << body.error().message;
  EXPECT_EQ(json::parse(*body),
            json({{"prompt", "a \"b\"\\ \"c\"\n"}, {"model", "m"}, {"max_tokens", 16}}));
}

TEST(ContinuationBody, KeepsTheWayALengthWasBounded) {
  const std::string messages = R"("messages":[{"role":"user","content":"x"}])";
  const auto read = [&](const std::string& more, std::optional<int> left) {
    return json::parse(*ContinuationBody("{" + messages + more + "}", "y", left));
  };
  EXPECT_EQ(read(R"(,"max_completion_tokens":9)", 4)["max_completion_tokens"], 4);
  EXPECT_FALSE(read(R"(,"max_completion_tokens":9)", 4).contains("max_tokens"));
  EXPECT_EQ(read("", 4)["max_tokens"], 4) << "a bound that was the endpoint's own";
  const json unbounded = read(R"(,"max_tokens":null,"max_completion_tokens":null)", std::nullopt);
  EXPECT_FALSE(unbounded.contains("max_tokens") || unbounded.contains("max_completion_tokens"));
}

TEST(ContinuationBody, RefusesWhatItCannotExtend) {
  for (const char* body :
       {"", "{}", R"({"prompt":["x"]})", R"({"messages":"x"})", R"({"messages":[ ]})",
        R"({"messages":[1],"messages":[2]})", R"({"messages":[1],"prompt":"x"})",
        R"({"mess\u0061ges":[1]})", R"({"messages":[1],"guided_json":{}})",
        R"({"prompt":"x","grammar":"root ::= x"})"}) {
    EXPECT_FALSE(ContinuationBody(body, "x", 1)) << body;
  }
}

}  // namespace
}  // namespace tare::api
