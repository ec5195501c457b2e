// The engine on a real model: the promises that only real weights can break.
#include <gtest/gtest.h>

#include <random>

#include "base/test_model.h"
#include "engine/collecting_sink.h"
#include "engine/local_model.h"

namespace tare::engine {
namespace {

class RealModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = FindTestModel();
    if (!path_) GTEST_SKIP() << kTestModelMissing;
  }

  LocalModel Load(const std::string& dtype, EngineOptions engine = {}, int threads = 1) {
    LocalModelOptions options;
    options.threads = threads;
    options.model = path_->string();
    options.dtype = dtype;
    options.engine = std::move(engine);
    options.engine.batch_window = Nanos{};
    options.engine.kv_memory_bytes = std::size_t{512} << 20;
    options.engine.max_model_len = 1024;
    auto local = LoadLocalModel(std::move(options));
    EXPECT_TRUE(local.has_value()) << local.error().message;
    return *std::move(local);
  }

  static GenerateRequest Chat(const LocalModel& local, const std::string& question) {
    const std::string messages = R"([{"role":"user","content":")" + question + R"("}])";
    model::ChatInput input;
    input.messages_json = messages;
    GenerateRequest request;
    request.prompt = *local.text->EncodeChat(input);
    request.sampling.temperature = 0.0f;
    request.max_new_tokens = 24;
    return request;
  }

  static std::shared_ptr<CollectingSink> Ask(const LocalModel& local, GenerateRequest request) {
    auto sink = std::make_shared<CollectingSink>();
    auto handle = local.engine->Submit(std::move(request), sink);
    EXPECT_TRUE(handle.has_value()) << handle.error().message;
    return sink;
  }

  std::optional<std::filesystem::path> path_;
};

TEST_F(RealModelTest, AnswersAQuestion) {
  const LocalModel local = Load("auto");
  auto sink = Ask(local, Chat(local, "What is the capital of France?"));
  sink->Wait();
  EXPECT_NE(sink->choice().text.find("Paris"), std::string::npos) << sink->choice().text;
  EXPECT_EQ(sink->choice().finish, FinishReason::kStop);
  EXPECT_EQ(sink->choice().text, local.text->tokenizer().Decode(sink->tokens()));
}

TEST_F(RealModelTest, StopStringsMinTokensAndLogprobs) {
  const LocalModel local = Load("int8");
  GenerateRequest request = Chat(local, "What is the capital of France?");
  request.logprobs = 3;
  auto whole = Ask(local, request);
  whole->Wait();
  const std::string text = whole->choice().text;
  for (const GeneratedToken& token : whole->choice().details) {
    ASSERT_EQ(token.top.size(), 3u);
    EXPECT_EQ(token.top[0].first, token.id);  // greedy
    EXPECT_FLOAT_EQ(token.top[0].second, token.logprob);
    EXPECT_LE(token.logprob, 0.0f);
  }
  // A stop string that begins and ends inside tokens.
  const std::size_t at = text.find("ari");
  ASSERT_NE(at, std::string::npos) << text;
  request.stop = {"zzz", "ari"};
  auto stopped = Ask(local, request);
  stopped->Wait();
  EXPECT_EQ(stopped->choice().text, text.substr(0, at));
  EXPECT_EQ(stopped->choice().finish, FinishReason::kStop);
  // The same answer goes on when it may not end yet.
  request.stop.clear();
  request.max_new_tokens = whole->usage().generated_tokens + 10;
  request.min_new_tokens = *request.max_new_tokens;
  auto longer = Ask(local, request);
  longer->Wait();
  EXPECT_EQ(longer->choice().finish, FinishReason::kLength);
  EXPECT_EQ(longer->usage().generated_tokens, *request.max_new_tokens);
}

// One request replayed among random others, in steps of other sizes, with and without prefix hits:
// the same tokens and, bit for bit, the same log probabilities.
TEST_F(RealModelTest, CompanyChangesNothing) {
  for (const char* dtype : {"int4", "int8"}) {
    std::vector<TokenId> expected;
    std::vector<float> logprobs;
    std::mt19937 random(11);
    for (const int budget : {512, 37}) {
      EngineOptions options;
      options.max_num_seqs = 8;
      options.max_num_batched_tokens = budget;
      // One thread or two: work is split by rows and heads, never within a sum.
      const LocalModel local = Load(dtype, options, budget == 37 ? 2 : 1);
      GenerateRequest request = Chat(local,
                                     "Write one sentence about the sea, one about the mountains, "
                                     "and one about the sky at night when the moon is full.");
      request.sampling.temperature = 1.0f;
      request.sampling.top_p = 0.95f;
      request.seed = 7;
      request.logprobs = 0;
      request.max_new_tokens = 12;
      for (int round = 0; round < 3; ++round) {  // the later rounds find their prompt cached
        std::vector<std::shared_ptr<CollectingSink>> others;
        for (int i = 0; i < round * 2; ++i) {
          GenerateRequest other = Chat(local, "Tell me about number " + std::to_string(random()));
          other.sampling.temperature = 1.0f;
          other.max_new_tokens = 4 + static_cast<int>(random() % 12);
          others.push_back(Ask(local, other));
        }
        GenerateRequest same = request;
        same.use_prefix_cache = round != 1;
        auto sink = Ask(local, same);
        sink->Wait();
        std::vector<float> got;
        for (const GeneratedToken& token : sink->choice().details) got.push_back(token.logprob);
        if (expected.empty()) {
          expected = sink->tokens();
          logprobs = got;
        }
        EXPECT_EQ(sink->tokens(), expected) << dtype << " budget " << budget << " round " << round;
        EXPECT_EQ(got, logprobs) << dtype << " budget " << budget << " round " << round;
        if (round == 2) {
          EXPECT_GT(sink->usage().cached_tokens, 0);
        }
        for (const auto& other : others) other->Wait();
      }
    }
  }
}

}  // namespace
}  // namespace tare::engine
