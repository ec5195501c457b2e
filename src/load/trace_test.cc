#include "load/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/text.h"

namespace tare::load {
namespace {

using ::testing::HasSubstr;

TEST(Trace, ReadsAzure) {
  const auto trace = ParseTrace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
      "2023-11-16 18:15:47.1805900,396,109\r\n",
      "azure");
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_EQ(trace->requests[1].at, std::chrono::milliseconds(500));
  EXPECT_EQ(trace->requests[0].input_tokens, 374);
  EXPECT_EQ(trace->requests[1].output_tokens, 109);
}

constexpr std::string_view kMooncake =
    "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 50, \"hash_ids\": [0, 1, 2]}\n"
    "{\"timestamp\": 250, \"input_length\": 1300, \"output_length\": 9, \"hash_ids\": [0, 1, 7]}\n";

TEST(Trace, RebuildsSharedPrefixes) {
  const auto trace = std::make_shared<const Trace>(ParseTrace(kMooncake, "mooncake").value());
  EXPECT_EQ(trace->requests[1].at, std::chrono::milliseconds(250));
  EXPECT_NEAR(trace->ideal_prefix_hit_rate(), 1024.0 / 2400, 1e-12);
  const auto prompts = MakeTracePrompts(trace, 1, {}, 0, 0);
  const Prompt a = prompts->Make(0);
  const Prompt b = prompts->Make(1);
  EXPECT_EQ(a.output_tokens, 50);
  const auto words_a = Split(a.content_json, ' ');
  const auto words_b = Split(b.content_json, ' ');
  EXPECT_EQ(words_a.size(), 1100u);
  EXPECT_EQ(words_b.size(), 1300u);
  EXPECT_TRUE(std::equal(words_a.begin(), words_a.begin() + 1024, words_b.begin()));
  EXPECT_FALSE(std::equal(words_a.begin() + 1024, words_a.end() - 1, words_b.begin() + 1024));
  EXPECT_EQ(Split(MakeTracePrompts(trace, 1, {}, 100, 3)->Make(0).content_json, ' ').size(), 100u);
}

TEST(Trace, ReadsBackWhatItWrites) {
  Trace trace = ParseTrace(kMooncake, "mooncake").value();
  trace.requests.push_back({Nanos{123'456'789'123}, 1, 7, {}});
  const auto read = ParseTrace(FormatTrace(trace), "again");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  ASSERT_EQ(read->requests.size(), trace.requests.size());
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    EXPECT_EQ(read->requests[i].at, trace.requests[i].at) << i;
    EXPECT_EQ(read->requests[i].input_tokens, trace.requests[i].input_tokens) << i;
    EXPECT_EQ(read->requests[i].output_tokens, trace.requests[i].output_tokens) << i;
    EXPECT_EQ(read->requests[i].blocks, trace.requests[i].blocks) << i;
  }
}

TEST(Trace, NamesTheLineThatIsWrong) {
  EXPECT_THAT(ParseTrace("TIMESTAMP,C,G\n2023-11-16 18:15:46,1\n", "t").error().message,
              HasSubstr("t:2: three columns"));
  EXPECT_THAT(ParseTrace("TIMESTAMP,C,G\nyesterday,1,2\n", "t").error().message, HasSubstr("t:2:"));
  EXPECT_THAT(ParseTrace("{\"timestamp\":0}\n", "t").error().message, HasSubstr("input_length"));
  EXPECT_THAT(ParseTrace("{\"timestamp\":0,\"input_length\":1e99,\"output_length\":1}", "t")
                  .error()
                  .message,
              HasSubstr("range"));
  EXPECT_THAT(ParseTrace("\n", "t").error().message, HasSubstr("no requests"));
}

TEST(Trace, TheOriginalsHaveTheirPublishedShape) {
  const std::filesystem::path data = TARE_SOURCE_DIR "/../shared/data/traces";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "no ../shared/data/traces";
  const auto code = LoadTrace(data / "azure2023/AzureLLMInferenceTrace_code.csv");
  ASSERT_TRUE(code.has_value()) << code.error().message;
  EXPECT_EQ(code->requests.size(), 8819u);
  EXPECT_NEAR(code->gap_cv(), 13, 0.5);
  const auto conversation = LoadTrace(data / "mooncake/conversation_trace.jsonl");
  ASSERT_TRUE(conversation.has_value()) << conversation.error().message;
  EXPECT_EQ(conversation->requests.size(), 12'031u);
  EXPECT_NEAR(conversation->ideal_prefix_hit_rate(), 0.37, 0.02);
}

RC_GTEST_PROP(Trace, AnyTextIsReadWithoutHarm, (const std::string& text)) {
  static_cast<void>(ParseTrace(text, "t"));
  static_cast<void>(ParseTrace("TIMESTAMP\n" + text, "t"));
}

TEST(Trace, IsCutToAWindow) {
  const Trace whole = ParseTrace(
                          "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                          "2023-11-16 18:00:00.0,1,1\n2023-11-16 18:00:05.0,2,1\n"
                          "2023-11-16 18:00:09.0,3,1\n2023-11-16 18:00:20.0,4,1\n",
                          "t")
                          .value();
  const Trace cut = CutTrace(whole, std::chrono::seconds(5), std::chrono::seconds(15)).value();
  ASSERT_EQ(cut.requests.size(), 2u);
  EXPECT_EQ(cut.requests[0].at, Nanos(0));
  EXPECT_EQ(cut.requests[1].at, Nanos(std::chrono::seconds(4)));
  EXPECT_EQ(CutTrace(whole, std::chrono::seconds(9), Nanos(0)).value().requests.size(), 2u);
  EXPECT_FALSE(CutTrace(whole, std::chrono::seconds(21), Nanos(0)).has_value());
}

}  // namespace
}  // namespace tare::load
