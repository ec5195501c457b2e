#include "load/chunk.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tare::load {
namespace {

TEST(Chunk, TellsTheKindsOfChunksApart) {
  ChunkReader reader;
  EXPECT_TRUE(reader.Read("[DONE]").done);

  const auto role = reader.Read(
      R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]})");
  EXPECT_TRUE(role.well_formed);
  EXPECT_FALSE(role.bears_tokens);
  EXPECT_FALSE(role.finished);

  EXPECT_TRUE(reader.Read(R"({"choices":[{"delta":{"content":"Hi"}}]})").bears_tokens);
  EXPECT_TRUE(reader.Read(R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})").bears_tokens);
  EXPECT_TRUE(reader.Read(R"({"choices":[{"delta":{"reasoning":"hm"}}]})").bears_tokens);
  EXPECT_TRUE(reader.Read(R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})").bears_tokens);
  EXPECT_TRUE(reader.Read(R"({"choices":[{"text":" a"}]})").bears_tokens);
  EXPECT_EQ(reader.Read(R"({"choices":[{"text":" a b","token_ids":[5,6]}]})").tokens, 2);

  const auto last = reader.Read(R"({"choices":[{"delta":{},"finish_reason":"length"}]})");
  EXPECT_TRUE(last.finished);
  EXPECT_FALSE(last.bears_tokens);

  const auto usage =
      reader.Read(R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,)"
                  R"("prompt_tokens_details":{"cached_tokens":3}}})");
  EXPECT_TRUE(usage.has_usage);
  EXPECT_FALSE(usage.bears_tokens);
  EXPECT_EQ(usage.prompt_tokens, 9);
  EXPECT_EQ(usage.completion_tokens, 4);
  EXPECT_EQ(usage.cached_tokens, 3);
  EXPECT_FALSE(reader.Read(R"({"choices":[{"delta":{"content":"x"}}],"usage":null})").has_usage);

  EXPECT_EQ(reader.Read(R"({"error":{"message":"full"}})").error, "full");
  EXPECT_EQ(reader.Read(R"({"error":"full"})").error, "full");
  EXPECT_FALSE(reader.Read(R"({"choices":[)").well_formed);
  EXPECT_FALSE(reader.Read("").well_formed);
  EXPECT_FALSE(reader.Read("[1]").well_formed);
}

TEST(Chunk, ReadsWholeAnswers) {
  ChunkReader reader;
  const auto facts = reader.ReadWhole(
      R"({"choices":[{"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],)"
      R"("usage":{"prompt_tokens":2,"completion_tokens":1}})");
  EXPECT_TRUE(facts.bears_tokens && facts.finished && facts.has_usage);
  EXPECT_EQ(facts.completion_tokens, 1);
}

RC_GTEST_PROP(Chunk, AnyBytesAreReadWithoutHarm, (const std::string& bytes)) {
  ChunkReader reader;
  const auto facts = reader.Read(bytes);
  RC_ASSERT(facts.tokens >= 0);
}

}  // namespace
}  // namespace tare::load
