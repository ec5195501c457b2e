#include "api/request_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <nlohmann/json.hpp>

namespace tare::api {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json Chat() { return {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}}; }
json With(const char* key, json value) {
  json body = Chat();
  body[key] = std::move(value);
  return body;
}

TEST(ReadChatRequest, ReadsEveryOption) {
  json body = Chat();
  body.update(json::parse(R"({"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"seed":-1,
    "frequency_penalty":-2,"presence_penalty":2,"repetition_penalty":1.1,"max_tokens":5,"n":2,
    "stop":["a","b"],"stop_token_ids":[3],"logit_bias":{"7":-100},"logprobs":true,
    "top_logprobs":3,"stream":true,"stream_options":{"include_usage":true},"user":"u",
    "ignore_eos":true,"min_tokens":2,"cache_salt":"s","service_tier":"flex",
    "response_format":{"type":"text"},"metadata":{"a":"b"},"store":false,"unknown_thing":[1],
    "chat_template_kwargs":{"enable_thinking":false},"parallel_tool_calls":true})"));
  const auto request = ReadChatRequest(body.dump());
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->model, "m");
  EXPECT_EQ(request->messages_json, R"([{"role":"user","content":"hi"}])");
  EXPECT_FLOAT_EQ(request->sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(request->sampling.top_p, 0.9f);
  EXPECT_EQ(request->sampling.top_k, 40);
  EXPECT_EQ(request->sampling.seed, ~std::uint64_t{0});
  EXPECT_FLOAT_EQ(request->sampling.frequency_penalty, -2);
  EXPECT_EQ(request->max_tokens, 5);
  EXPECT_EQ(request->n, 2);
  EXPECT_EQ(request->stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request->stop_tokens, (std::vector<TokenId>{TokenId(3)}));
  EXPECT_EQ(request->sampling.logit_bias.at(7), -100);
  EXPECT_EQ(request->logprobs, 3);
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
  EXPECT_TRUE(request->sampling.ignore_eos);
  EXPECT_EQ(request->sampling.min_tokens, 2);
  EXPECT_EQ(request->tier, Tier::kBatch);
  EXPECT_EQ(request->template_kwargs_json, R"({"enable_thinking":false})");
}

TEST(ReadChatRequest, NullMeansAbsent) {
  for (const char* key : {"temperature", "stop", "max_tokens", "seed", "tools", "stream_options",
                          "n", "logit_bias", "audio", "functions", "response_format"}) {
    EXPECT_TRUE(ReadChatRequest(With(key, nullptr).dump())) << key;
  }
}

TEST(ReadChatRequest, PrefersMaxCompletionTokens) {
  json body = With("max_tokens", 5);
  body["max_completion_tokens"] = 9;
  EXPECT_EQ(ReadChatRequest(body.dump())->max_tokens, 9);
  EXPECT_EQ(ReadChatRequest(Chat().dump())->max_tokens, std::nullopt);
}

TEST(ReadChatRequest, NormalizesMessages) {
  json body = With("messages", json::parse(R"([
    {"role":"developer","content":"be brief"},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"x"},
    {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",
      "function":{"name":"f","arguments":"{\"x\": 1}"}}]},
    {"role":"tool","tool_call_id":"1","content":"2"}])"));
  const auto request = ReadChatRequest(body.dump());
  ASSERT_TRUE(request) << request.error().message;
  const json messages = json::parse(request->messages_json);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[1]["content"], "a\nb");
  EXPECT_EQ(messages[1]["name"], "x");
  EXPECT_TRUE(messages[2]["content"].is_null());
  EXPECT_EQ(messages[2]["tool_calls"][0]["function"]["arguments"]["x"], 1);
  EXPECT_EQ(messages[3]["tool_call_id"], "1");
}

TEST(ReadChatRequest, ToolChoiceNoneHidesTheTools) {
  json body = With("tools", json::parse(R"([{"type":"function","function":{"name":"f"}}])"));
  EXPECT_THAT(ReadChatRequest(body.dump())->tools_json, HasSubstr("\"f\""));
  body["tool_choice"] = "none";
  EXPECT_EQ(ReadChatRequest(body.dump())->tools_json, "");
}

struct Wrong {
  const char* param;
  json body;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.body.dump(); }

// What only some upstreams can do is read, and marked.
class ReadChatRequestUnsupported : public ::testing::TestWithParam<Wrong> {};
TEST_P(ReadChatRequestUnsupported, IsMarked) {
  const auto request = ReadChatRequest(GetParam().body.dump());
  ASSERT_TRUE(request) << request.error().message;
  ASSERT_FALSE(request->unsupported.empty());
  EXPECT_EQ(request->unsupported[0].param, GetParam().param);
}
INSTANTIATE_TEST_SUITE_P(
    All, ReadChatRequestUnsupported,
    ::testing::Values(
        Wrong{"messages[0].content[0].type",
              With("messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}})},
        Wrong{"tool_choice", With("tool_choice", "required")},
        Wrong{"response_format.type", With("response_format", {{"type", "json_object"}})},
        Wrong{"functions", With("functions", json::array())},
        Wrong{"modalities", With("modalities", {"audio"})},
        Wrong{"audio", With("audio", {{"voice", "x"}})}));

class ReadChatRequestWrong : public ::testing::TestWithParam<Wrong> {};
TEST_P(ReadChatRequestWrong, NamesTheParameter) {
  const auto request = ReadChatRequest(GetParam().body.dump());
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(request.error().param, GetParam().param);
  EXPECT_THAT(request.error().message, HasSubstr(GetParam().param));
}
INSTANTIATE_TEST_SUITE_P(
    All, ReadChatRequestWrong,
    ::testing::Values(
        Wrong{"model", {{"messages", {{{"role", "user"}, {"content", "x"}}}}}},
        Wrong{"model", With("model", 5)}, Wrong{"messages", {{"model", "m"}}},
        Wrong{"messages", With("messages", "hi")},
        Wrong{"messages", With("messages", json::array())},
        Wrong{"messages[0]", With("messages", {1})},
        Wrong{"messages[0].role", With("messages", {{{"content", "x"}}})},
        Wrong{"messages[0].role", With("messages", {{{"role", "boss"}, {"content", "x"}}})},
        Wrong{"messages[0].content", With("messages", {{{"role", "user"}, {"content", 5}}})},
        Wrong{"messages[0].content", With("messages", {{{"role", "user"}}})},
        Wrong{"messages[0].content[0].text",
              With("messages", {{{"role", "user"}, {"content", {{{"type", "text"}}}}}})},
        Wrong{"temperature", With("temperature", -0.1)},
        Wrong{"temperature", With("temperature", 2.1)},
        Wrong{"temperature", With("temperature", "0.5")},
        Wrong{"temperature", With("temperature", true)}, Wrong{"top_p", With("top_p", 1.5)},
        Wrong{"top_p", With("top_p", -1)}, Wrong{"top_k", With("top_k", 1.5)},
        Wrong{"max_tokens", With("max_tokens", 0)}, Wrong{"max_tokens", With("max_tokens", -1)},
        Wrong{"max_tokens", With("max_tokens", "9")},
        Wrong{"max_tokens", With("max_tokens", 99999999999)},
        Wrong{"max_completion_tokens", With("max_completion_tokens", 0)}, Wrong{"n", With("n", 0)},
        Wrong{"n", With("n", 129)}, Wrong{"seed", With("seed", 1.5)},
        Wrong{"stop", With("stop", 5)}, Wrong{"stop", With("stop", {1})},
        Wrong{"stop", With("stop", "")},
        Wrong{"stop", With("stop", json(std::vector<std::string>(17, "x")))},
        Wrong{"logit_bias", With("logit_bias", {{"x", 1}})},
        Wrong{"logit_bias", With("logit_bias", {{"1", 101}})},
        Wrong{"logit_bias", With("logit_bias", 5)}, Wrong{"stream", With("stream", "yes")},
        Wrong{"stream_options", With("stream_options", {{"include_usage", true}})},
        Wrong{"top_logprobs", With("top_logprobs", 2)},
        Wrong{"top_logprobs", With("top_logprobs", 21)}, Wrong{"logprobs", With("logprobs", 2)},
        Wrong{"tools", With("tools", "f")}, Wrong{"tools[0]", With("tools", {{{"type", "magic"}}})},
        Wrong{"tools[0].function", With("tools", {{{"type", "function"}}})},

        Wrong{"frequency_penalty", With("frequency_penalty", 3)},
        Wrong{"repetition_penalty", With("repetition_penalty", 0)},
        Wrong{"chat_template_kwargs", With("chat_template_kwargs", 1)}));

TEST(ReadChatRequest, RefusesWhatIsNotAnObject) {
  for (const char* body : {"", " ", "{", "[]", "5", "null", "\"x\"", "{}x", "{\"model\":}", "\xFF",
                           "{\"model\":\"\xFF\"}", "{\"model\":\"m\",}"}) {
    EXPECT_FALSE(ReadChatRequest(body)) << body;
    EXPECT_FALSE(ReadCompletionRequest(body)) << body;
    EXPECT_FALSE(ReadTokenizeRequest(body)) << body;
    EXPECT_FALSE(ReadDetokenizeRequest(body)) << body;
  }
}

TEST(ReadChatRequest, SurvivesDepthBombs) {
  for (const std::size_t depth : {200u, 100000u, 2000000u}) {
    const std::string bomb = R"({"model":"m","messages":)" + std::string(depth, '[');
    EXPECT_THAT(ReadChatRequest(bomb).error().message,
                ::testing::AnyOf(HasSubstr("deeper"), HasSubstr("JSON")));
    const std::string closed = bomb + std::string(depth, ']') + "}";
    EXPECT_THAT(ReadChatRequest(closed).error().message, HasSubstr("nests deeper than 100"));
  }
}

TEST(ReadCompletionRequest, ReadsPromptsOfEveryForm) {
  const auto read = [](json prompt) {
    return ReadCompletionRequest(json{{"model", "m"}, {"prompt", std::move(prompt)}}.dump());
  };
  EXPECT_EQ(read("a")->prompt, "a");
  EXPECT_EQ(read(json::array({"a"}))->prompt, "a");
  EXPECT_EQ(read({1, 2})->prompt_tokens.size(), 2u);
  EXPECT_EQ(read(json::array({json::array({1, 2, 3})}))->prompt_tokens.size(), 3u);
  EXPECT_EQ(read("a")->max_tokens, 16);
  for (const json& wrong : {json(5), json::array(), json::array({-1}), json::array({1, "a"}),
                            json::array({json::array()}), json::array({1.5}), json(true)}) {
    const auto request = read(wrong);
    ASSERT_FALSE(request) << wrong;
    EXPECT_EQ(request.error().param, "prompt");
  }
  for (const json& several :
       {json::array({"a", "b"}), json::array({json::array({1}), json::array({2})})}) {
    EXPECT_EQ(read(several)->unsupported.at(0).param, "prompt");
  }
}

TEST(ReadCompletionRequest, RefusesWhatItCannotDo) {
  for (const auto& [key, value] : std::vector<std::pair<const char*, json>>{
           {"echo", true}, {"suffix", "x"}, {"best_of", 2}, {"logprobs", true}}) {
    const auto request =
        ReadCompletionRequest(json{{"model", "m"}, {"prompt", "a"}, {key, value}}.dump());
    if (std::string_view(key) == "logprobs") {
      ASSERT_FALSE(request);
      EXPECT_EQ(request.error().param, key);
    } else {
      ASSERT_TRUE(request) << key;
      EXPECT_EQ(request->unsupported.at(0).param, key);
    }
  }
}

TEST(ReadTokenizeRequest, TakesPromptOrMessages) {
  EXPECT_FALSE(ReadTokenizeRequest(R"({"model":"m","prompt":"a","add_special_tokens":false})")
                   ->add_special_tokens);
  EXPECT_FALSE(ReadTokenizeRequest(Chat().dump())->input.messages_json.empty());
  EXPECT_EQ(ReadTokenizeRequest(R"({"model":"m"})").error().param, "prompt");
  // A chat's last message is gone on from as it is where the chat is asked.
  const auto chat = [](const std::string& more) {
    return ReadTokenizeRequest(R"({"model":"m","messages":[{"role":"user","content":"a"},)"
                               R"({"role":"assistant","content":"b"}],)" +
                               more + "}");
  };
  EXPECT_EQ(chat(R"("continue_final_message":true)")->input.answer_prefix, "b");
  EXPECT_EQ(chat(R"("continue_final_message":true,"add_generation_prompt":true)").error().param,
            "add_generation_prompt");
  EXPECT_EQ(chat(R"("add_generation_prompt":false)")->input.unsupported.at(0).param,
            "add_generation_prompt");
  EXPECT_EQ(ReadDetokenizeRequest(R"({"tokens":[1,2]})")->tokens.size(), 2u);
  EXPECT_EQ(ReadDetokenizeRequest(R"({"tokens":"1"})").error().param, "tokens");
}

// Any value under any known key is read or refused, never more.
TEST(ReadChatRequest, SurvivesAnyValueAnywhere) {
  static const std::vector<std::string> kKeys = {
      "model",      "messages",     "temperature",
      "top_p",      "top_k",        "max_tokens",
      "n",          "seed",         "stop",
      "logit_bias", "stream",       "stream_options",
      "tools",      "tool_choice",  "response_format",
      "logprobs",   "top_logprobs", "prompt",
      "echo",       "modalities",   "chat_template_kwargs"};
  static const std::vector<json> kValues = {
      nullptr,
      true,
      0,
      -1,
      1e308,
      "x",
      "",
      json::array(),
      json::object(),
      json::array({1}),
      json::array({"x"}),
      json::array({json::object()}),
      {{"type", "text"}},
      18446744073709551615u,
      json::array({{{"role", "user"}, {"content", json::array({json::object()})}}}),
      json::array({{{"role", "assistant"}, {"tool_calls", json::array({json::object()})}}})};
  rc::check("no value crashes the readers", [] {
    json body = Chat();
    const auto edits = *rc::gen::container<std::vector<std::pair<int, int>>>(
        rc::gen::pair(rc::gen::inRange<int>(0, static_cast<int>(kKeys.size())),
                      rc::gen::inRange<int>(0, static_cast<int>(kValues.size()))));
    for (const auto& [key, value] : edits) {
      body[kKeys[static_cast<std::size_t>(key)]] = kValues[static_cast<std::size_t>(value)];
    }
    const std::string text = body.dump();
    const auto chat = ReadChatRequest(text);
    RC_ASSERT(chat.has_value() || !chat.error().message.empty());
    const auto completion = ReadCompletionRequest(text);
    RC_ASSERT(completion.has_value() || !completion.error().message.empty());
    ReadTokenizeRequest(text);
    const std::size_t cut = *rc::gen::inRange<std::size_t>(0, text.size());
    RC_ASSERT(!ReadChatRequest(std::string_view(text).substr(0, cut)));
  });
}

TEST(ChatRequest, ContinuesItsLastMessage) {
  const auto request = ReadChatRequest(
      R"({"continue_final_message":true,"model":"m","messages":[{"role":"user","content":"a"},)"
      R"({"role":"assistant","content":"It is"}]})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->answer_prefix, "It is");
  EXPECT_EQ(request->messages_json, R"([{"role":"user","content":"a"}])");
  for (const char* messages :
       {R"([{"role":"assistant","content":"a"}])",
        R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])",
        R"([{"role":"user","content":"a"},{"role":"assistant","content":""}])",
        R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","tool_calls":[)"
        R"({"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}])"}) {
    const auto refused = ReadChatRequest(
        std::string(R"({"model":"m","continue_final_message":true,"messages":)") + messages + "}");
    ASSERT_FALSE(refused) << messages;
    EXPECT_EQ(refused.error().param, "continue_final_message");
  }
}

TEST(ChatRequest, AGenerationPromptIsForNewMessages) {
  const auto read = [](const std::string& more) {
    return ReadChatRequest(R"({"model":"m","messages":[{"role":"user","content":"a"},)"
                           R"({"role":"assistant","content":"b"}],)" +
                           more + "}");
  };
  EXPECT_TRUE(read(R"("add_generation_prompt":true)")->unsupported.empty());
  EXPECT_TRUE(read(R"("add_generation_prompt":false,"continue_final_message":true)"));
  const auto both = read(R"("add_generation_prompt":true,"continue_final_message":true)");
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().param, "add_generation_prompt");
  const auto neither = read(R"("add_generation_prompt":false)");
  ASSERT_TRUE(neither) << "other servers may have it";
  EXPECT_EQ(neither->unsupported.at(0).param, "add_generation_prompt");
}

}  // namespace
}  // namespace tare::api
