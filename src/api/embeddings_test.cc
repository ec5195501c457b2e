#include "api/embeddings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/request_reader.h"
#include "api/upstream_wire.h"

namespace tare::api {
namespace {

using nlohmann::json;

TEST(EmbeddingsRequestTest, ReadsTheFourFormsOfInput) {
  const auto read = [](const std::string& input) {
    const auto request = ReadEmbeddingsRequest(R"({"model":"m","input":)" + input + "}");
    EXPECT_TRUE(request) << request.error().message;
    EXPECT_EQ(request->model, "m");
    return *request->embeddings;
  };
  EXPECT_EQ(read(R"("one")").texts, (std::vector<std::string>{"one"}));
  EXPECT_EQ(read(R"(["one","two"])").texts, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(read("[5,6]").tokens, (std::vector<std::vector<TokenId>>{{TokenId{5}, TokenId{6}}}));
  EXPECT_EQ(read("[[5],[6,7]]").tokens,
            (std::vector<std::vector<TokenId>>{{TokenId{5}}, {TokenId{6}, TokenId{7}}}));
}

TEST(EmbeddingsRequestTest, ReadsItsOptions) {
  const auto request = ReadEmbeddingsRequest(
      R"({"model":"m","input":"a","encoding_format":"base64","dimensions":64,"user":"u",
          "truncate_prompt_tokens":-1,"service_tier":"flex","priority":3,"stream":null})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_TRUE(request->embeddings->base64);
  EXPECT_EQ(request->embeddings->dimensions, 64);
  EXPECT_EQ(request->embeddings->truncate, -1);
  EXPECT_EQ(request->user, "u");
  EXPECT_EQ(request->tier, Tier::kBatch);
  EXPECT_TRUE(request->unsupported.empty());
  const auto other =
      ReadEmbeddingsRequest(R"({"model":"m","input":"a","encoding_format":"ubinary"})");
  ASSERT_TRUE(other);
  EXPECT_EQ(other->unsupported.at(0).param, "encoding_format");
}

TEST(EmbeddingsRequestTest, NamesWhatIsWrong) {
  const auto refused = [](const std::string& body, const char* param) {
    const auto request = ReadEmbeddingsRequest(body);
    ASSERT_FALSE(request) << body;
    EXPECT_EQ(request.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_EQ(request.error().param, param) << request.error().message;
  };
  refused(R"({"model":"m"})", "input");
  refused(R"({"input":"a"})", "model");
  refused(R"({"model":"m","input":[]})", "input");
  refused(R"({"model":"m","input":3})", "input");
  refused(R"({"model":"m","input":"a","input":"b"})", "input");
  refused(R"({"model":"m","input":["a",1]})", "input");
  refused(R"({"model":"m","input":[1,"a"]})", "input");
  refused(R"({"model":"m","input":[[1],"a"]})", "input");
  refused(R"({"model":"m","input":[-1]})", "input");
  refused(R"({"model":"m","input":"a","dimensions":0})", "dimensions");
  refused(R"({"model":"m","input":"a","truncate_prompt_tokens":0})", "truncate_prompt_tokens");
  refused(R"({"model":"m","input":"a","encoding_format":7})", "encoding_format");
  json many = {{"model", "m"}, {"input", json::array()}};
  for (int i = 0; i < 2049; ++i) many["input"].push_back("a");
  refused(many.dump(), "input");
}

TEST(EmbeddingsAnswerTest, WritesNumbersAndBase64OfTheSameVector) {
  // 1, -2 and 0.1 as little-endian F32; the base64 by hand from their bytes
  // 00 00 80 3F 00 00 00 C0 CD CC CC 3D.
  const std::vector<float> vector = {1.0f, -2.0f, 0.1f};
  std::string data;
  AppendEmbedding(data, 0, vector, false);
  data.push_back(',');
  AppendEmbedding(data, 1, vector, true);
  data.push_back(',');
  AppendEmbedding(data, 2, {vector.data(), 1}, true);
  AnswerHead head;
  head.model = "mini \"lm\"";
  const json answer = json::parse(WriteEmbeddings(head, data, {12, 0, 0}));
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "mini \"lm\"");
  EXPECT_EQ(answer["usage"], (json{{"prompt_tokens", 12}, {"total_tokens", 12}}));
  EXPECT_EQ(
      answer["data"][0],
      (json{{"object", "embedding"}, {"index", 0}, {"embedding", json::parse("[1,-2,0.1]")}}));
  EXPECT_EQ(answer["data"][1]["index"], 1);
  EXPECT_EQ(answer["data"][1]["embedding"], "AACAPwAAAMDNzMw9");
  EXPECT_EQ(answer["data"][2]["embedding"], "AACAPw==");
}

TEST(EmbeddingsAnswerTest, ReadsAServersAnswerAndKeepsItsEntriesAsTheyAre) {
  const auto answer = ReadEmbeddingsAnswer(
      R"({"object":"list","model":"x","data":[{"index":0,"embedding":[0.123456789012345]}],
          "usage":{"prompt_tokens":7,"total_tokens":7}})");
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->data, R"({"index":0,"embedding":[0.123456789012345]})");
  EXPECT_EQ(answer->usage.prompt_tokens, 7);
  EXPECT_EQ(ReadEmbeddingsAnswer(R"({"data":[{}]})")->usage.prompt_tokens, 0);
  // Byte for byte, whatever a parser makes of the numbers, the blanks and the text.
  const std::string entries =
      R"({ "index" : 0, "embedding": [0.10, 1e-9, 0.12345678901234567891,-0.0] ,"x":"]}\u00e9\""},)"
      "\n {\"index\":1,\"embedding\":[1E+2]}";
  const auto kept = ReadEmbeddingsAnswer(R"({"usage":{"data":[1]},"data": [ )" + entries + " ]}");
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_EQ(kept->data, " " + entries + " ");
  // A key that is written with an escape is not looked for.
  EXPECT_FALSE(ReadEmbeddingsAnswer(R"({"\u0064ata":[{"index":0}]})"));
  EXPECT_FALSE(ReadEmbeddingsAnswer("{"));
  EXPECT_FALSE(ReadEmbeddingsAnswer("[]"));
  EXPECT_FALSE(ReadEmbeddingsAnswer(R"({"data":[]})"));
}

TEST(EmbeddingsAnswerTest, TheUpstreamsBodyIsTheClientsWithAnotherModel) {
  auto request = ReadEmbeddingsRequest(R"({"model":"m","input":["a"],"dimensions":3,"x":1})");
  ASSERT_TRUE(request);
  request->wire_body = R"({"model":"m","input":["a"],"dimensions":3,"x":1})";
  const auto body = UpstreamBody(*request, "theirs", true);
  ASSERT_TRUE(body);
  EXPECT_EQ(json::parse(*body),
            (json{{"model", "theirs"}, {"input", {"a"}}, {"dimensions", 3}, {"x", 1}}));
}

}  // namespace
}  // namespace tare::api
