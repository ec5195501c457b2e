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

// What follows is certain enough (2.8 nats ahead) that no rounding of any precision changes it.
GenerateRequest Capitals(const LocalModel& local) {
  GenerateRequest request;
  request.prompt = *local.text->EncodePrompt(
      "The capital of Italy is Rome, the capital of Spain is Madrid, and the capital of France is");
  request.sampling.temperature = 0.0f;
  request.max_new_tokens = 24;
  return request;
}

TEST_F(RealModelTest, KnowsWhatFollows) {
  const LocalModel local = Load("auto");
  auto sink = Ask(local, Capitals(local));
  sink->Wait();
  EXPECT_TRUE(sink->choice().text.starts_with(" Paris.")) << sink->choice().text;
  EXPECT_EQ(sink->choice().text, local.text->tokenizer().Decode(sink->tokens()));
  EXPECT_EQ(sink->usage().cached_tokens, 0);
}

TEST_F(RealModelTest, EndTokensEndTheAnswerUnlessTold) {
  const LocalModel local = Load("int8");
  GenerateRequest request = Chat(local, "Hello");
  ASSERT_TRUE(local.text->eos().has_value());
  request.sampling.logit_bias = {{*local.text->eos(), 100.0f}};
  auto ended = Ask(local, request);
  ended->Wait();
  EXPECT_EQ(ended->choice().finish, FinishReason::kStop);
  EXPECT_EQ(ended->choice().text, "");
  request.ignore_eos = true;
  auto ignored = Ask(local, request);
  ignored->Wait();
  EXPECT_EQ(ignored->choice().finish, FinishReason::kLength);
  request.ignore_eos = false;
  request.min_new_tokens = 5;
  auto late = Ask(local, request);
  late->Wait();
  EXPECT_EQ(late->usage().generated_tokens, 6);  // five others, then the end
}

TEST_F(RealModelTest, StopStringsAndLogprobs) {
  const LocalModel local = Load("int8");
  GenerateRequest request = Capitals(local);
  request.logprobs = 3;
  auto whole = Ask(local, request);
  whole->Wait();
  for (const GeneratedToken& token : whole->choice().details) {
    ASSERT_EQ(token.top.size(), 3u);
    EXPECT_EQ(token.top[0].first, token.id);  // greedy
    EXPECT_FLOAT_EQ(token.top[0].second, token.logprob);
    EXPECT_LE(token.logprob, 0.0f);
  }
  request.stop = {"zzz", "ari"};  // begins and ends inside a token
  auto stopped = Ask(local, request);
  stopped->Wait();
  EXPECT_EQ(stopped->choice().text, " P");
  EXPECT_EQ(stopped->choice().finish, FinishReason::kStop);
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
