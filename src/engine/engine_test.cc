#include "engine/engine.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/collecting_sink.h"
#include "engine/cpu_executor.h"
#include "engine/fake_model.h"

namespace tare::engine {
namespace {

EngineOptions SmallOptions() {
  EngineOptions options;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 64;
  options.kv_type = kernels::KvType::kF32;
  options.batch_window = Nanos{};
  options.seed = 1;
  return options;
}

std::unique_ptr<Engine> StartFake(EngineOptions options, FakeModel** model = nullptr) {
  auto fake = std::make_unique<FakeModel>();
  if (model != nullptr) *model = fake.get();
  auto engine = Engine::Start(std::move(options), std::move(fake), nullptr);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return std::move(*engine);
}

GenerateRequest Greedy(std::vector<int> prompt, int count) {
  GenerateRequest request;
  for (const int token : prompt) request.prompt.push_back(TokenId{token});
  request.max_new_tokens = count;
  request.sampling.temperature = 0.0f;
  return request;
}

std::vector<int> Ramp(int length, int factor) {
  std::vector<int> tokens;
  for (int i = 0; i < length; ++i) tokens.push_back((i * factor + 1) % 61);
  return tokens;
}

TEST(EngineTest, AnswersAsTheModelWould) {
  auto engine = StartFake(SmallOptions());
  auto sink = std::make_shared<CollectingSink>();
  const GenerateRequest request = Greedy(Ramp(40, 7), 30);
  ASSERT_TRUE(engine->Submit(request, sink).has_value());
  sink->Wait();
  EXPECT_EQ(sink->tokens(), FakeModel().Continue(request.prompt, 30));
  EXPECT_EQ(sink->choice().finish, FinishReason::kLength);
  EXPECT_EQ(sink->usage().prompt_tokens, 40);
  EXPECT_EQ(sink->usage().generated_tokens, 30);
  EXPECT_LE(sink->usage().queued, sink->usage().first_token);
  EXPECT_LE(sink->usage().first_token, sink->usage().total);
}

TEST(EngineTest, ManyAtOnceGetTheAnswersTheyWouldGetAlone) {
  EngineOptions options = SmallOptions();
  options.kv_memory_bytes =
      24 * PageBytes(FakeModel().kv_shape(options.kv_type));  // few pages: preemptions
  options.max_model_len = 256;
  auto engine = StartFake(options);
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 40; ++i) {
    requests.push_back(Greedy(Ramp(10 + i * 3, 1 + i % 4), 20 + i));
    sinks.push_back(std::make_shared<CollectingSink>());
    ASSERT_TRUE(engine->Submit(requests.back(), sinks.back()).has_value());
  }
  const FakeModel alone;
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    sinks[i]->Wait();
    const int count = *requests[i].max_new_tokens;
    EXPECT_EQ(sinks[i]->tokens(), alone.Continue(requests[i].prompt, count)) << i;
    EXPECT_EQ(sinks[i]->terminal_calls(), 1);
  }
  EXPECT_TRUE(engine->Drain(Nanos::max()));
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.pages_used, 0u);
  EXPECT_EQ(stats.requests_finished, 40u);
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_GT(stats.prefix_hits, 0u);
}

// The same request and seed among changing company, with and without prefix hits.
TEST(EngineTest, CompanyDoesNotChangeSampledTokens) {
  GenerateRequest request = Greedy(Ramp(50, 3), 40);
  request.sampling.temperature = 1.0f;
  request.sampling.top_p = 0.9f;
  request.seed = 1234;
  std::vector<TokenId> expected;
  std::mt19937 random(5);
  for (int round = 0; round < 8; ++round) {
    EngineOptions options = SmallOptions();
    options.max_num_batched_tokens = 8 + static_cast<int>(random() % 90);
    options.prefix_cache = round % 2 == 0;
    auto engine = StartFake(options);
    std::vector<std::shared_ptr<CollectingSink>> others;
    for (int i = 0; i < round * 3; ++i) {
      others.push_back(std::make_shared<CollectingSink>());
      GenerateRequest other = i % 3 == 0 ? request : Greedy(Ramp(3 + i * 5, i), 30);
      other.seed = random();
      ASSERT_TRUE(engine->Submit(other, others.back()).has_value());
    }
    auto sink = std::make_shared<CollectingSink>();
    ASSERT_TRUE(engine->Submit(request, sink).has_value());
    sink->Wait();
    if (round == 0) expected = sink->tokens();
    EXPECT_EQ(sink->tokens(), expected) << round;
    EXPECT_EQ(expected.size(), 40u);
  }
}

TEST(EngineTest, ChoicesDifferAndShareThePrompt) {
  auto engine = StartFake(SmallOptions());
  GenerateRequest request = Greedy(Ramp(40, 5), 25);
  request.sampling.temperature = 1.5f;
  request.seed = 9;
  auto one = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->Submit(request, one).has_value());
  one->Wait();
  request.n = 3;
  auto three = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->Submit(request, three).has_value());
  three->Wait();
  EXPECT_EQ(three->tokens(0), one->tokens(0));
  EXPECT_NE(three->tokens(1), three->tokens(0));
  EXPECT_NE(three->tokens(2), three->tokens(1));
  EXPECT_EQ(three->usage().generated_tokens, 75);
  EXPECT_EQ(three->usage().cached_tokens, 32);
  EXPECT_TRUE(engine->Drain(Nanos::max()));
  EXPECT_EQ(engine->Stats().pages_used, 0u);
}

TEST(EngineTest, CancellingAThousandFreesAllPagesWithinOneStep) {
  EngineOptions options = SmallOptions();
  options.max_num_seqs = 1001;
  options.max_num_batched_tokens = 2000;
  options.speculation = {};                       // one row a sequence
  options.context_policy = ContextPolicy::kRing;  // answers without an end
  auto engine = StartFake(options);
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  std::vector<RequestHandle> handles;
  for (int i = 0; i < 1000; ++i) {
    sinks.push_back(std::make_shared<CollectingSink>());
    handles.push_back(*engine->Submit(Greedy({i % 61, 2, 3}, 1 << 30), sinks.back()));
  }
  sinks.back()->WaitForChunks(3);
  EXPECT_EQ(engine->Stats().running, 1000);
  // One more, which holds the engine up in its first step and goes on for a second.
  const auto last = std::make_shared<HoldingSink>();
  ASSERT_TRUE(engine->Submit(Greedy({1}, 2), last));
  last->reached.get_future().wait();
  const EngineStats before = engine->Stats();  // without the step that is held up
  for (const RequestHandle handle : handles) engine->Cancel(handle);
  last->go_on.set_value();
  for (const auto& sink : sinks) {
    sink->Wait();
    EXPECT_EQ(sink->choice().finish, FinishReason::kCancelled);
  }
  EXPECT_TRUE(engine->Drain(Nanos::max()));
  const EngineStats after = engine->Stats();
  EXPECT_EQ(after.pages_used, 0u);
  EXPECT_EQ(after.requests_cancelled, 1000u);
  // The step after the held one had nothing but the last request's second token.
  EXPECT_EQ(after.steps, before.steps + 2);
  EXPECT_EQ(after.computed_tokens, before.computed_tokens + 1000 + 1 + 1);
  engine->Cancel({99999});  // unknown handles are harmless
}

TEST(EngineTest, DrainRefusesNewRequestsAndCancelsLateOnes) {
  ManualClock clock;
  EngineOptions options = SmallOptions();
  options.clock = &clock;
  options.context_policy = ContextPolicy::kRing;  // answers without an end
  auto engine = StartFake(options);
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->Submit(Greedy({1, 2}, 1 << 30), sink).has_value());
  EXPECT_FALSE(engine->Drain(clock.Now()));  // the deadline is now
  EXPECT_EQ(sink->terminal_calls(), 1);
  EXPECT_EQ(engine->Submit(Greedy({1}, 1), sink).error().kind, ErrorKind::kUnavailable);
  EXPECT_TRUE(engine->Stats().draining);
}

TEST(EngineTest, DestroyingItEndsEveryRequest) {
  auto engine = StartFake(SmallOptions());
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int i = 0; i < 30; ++i) {
    sinks.push_back(std::make_shared<CollectingSink>());
    ASSERT_TRUE(engine->Submit(Greedy({i}, 250), sinks.back()).has_value());
  }
  engine.reset();
  for (const auto& sink : sinks) EXPECT_EQ(sink->terminal_calls(), 1);
}

TEST(EngineTest, AFailedStepFailsItsRequestsOnly) {
  FakeModel* model = nullptr;
  auto engine = StartFake(SmallOptions(), &model);
  model->throws = true;
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->Submit(Greedy({1, 2, 3}, 5), sink).has_value());
  sink->Wait();
  ASSERT_TRUE(sink->error().has_value());
  EXPECT_NE(sink->error()->message.find("out of order"), std::string::npos);
  model->throws = false;
  model->damaged = true;
  sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->Submit(Greedy({1, 2, 3}, 5), sink).has_value());
  sink->Wait();
  ASSERT_TRUE(sink->error().has_value());
  EXPECT_NE(sink->error()->message.find("not numbers"), std::string::npos);
  model->damaged = false;
  sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->Submit(Greedy({1, 2, 3}, 5), sink).has_value());
  sink->Wait();
  EXPECT_EQ(sink->tokens().size(), 5u);
  EXPECT_EQ(engine->Stats().requests_failed, 2u);
}

TEST(EngineTest, APassedDeadlineIsAnError) {
  ManualClock clock;
  EngineOptions options = SmallOptions();
  options.clock = &clock;
  auto engine = StartFake(options);
  GenerateRequest request = Greedy({1, 2, 3}, 200);
  request.deadline = clock.Now();
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->Submit(request, sink).has_value());
  sink->Wait();
  ASSERT_TRUE(sink->error().has_value());
  EXPECT_EQ(sink->error()->kind, ErrorKind::kDeadlineExceeded);
}

TEST(EngineTest, RefusalsNameTheParameter) {
  auto engine = StartFake(SmallOptions());
  auto sink = std::make_shared<CollectingSink>();
  const auto param = [&](GenerateRequest request) {
    auto result = engine->Submit(std::move(request), sink);
    return result ? std::string("accepted") : result.error().param;
  };
  const GenerateRequest good = Greedy({1, 2, 3}, 5);
  GenerateRequest bad = good;
  bad.prompt.clear();
  EXPECT_EQ(param(bad), "prompt");
  bad.prompt.assign(256, TokenId{1});
  EXPECT_EQ(param(bad), "prompt");
  bad = good;
  bad.prompt.push_back(TokenId{61});
  EXPECT_EQ(param(bad), "prompt");
  bad = good;
  bad.max_new_tokens = 0;
  EXPECT_EQ(param(bad), "max_tokens");
  bad = good;
  bad.min_new_tokens = 6;
  EXPECT_EQ(param(bad), "min_tokens");
  bad = good;
  bad.sampling.temperature = -1;
  EXPECT_EQ(param(bad), "temperature");
  bad = good;
  bad.sampling.top_p = std::nanf("");
  EXPECT_EQ(param(bad), "top_p");
  bad = good;
  bad.sampling.logit_bias = {{TokenId{-1}, 1.0f}};
  EXPECT_EQ(param(bad), "logit_bias");
  bad = good;
  bad.n = 0;
  EXPECT_EQ(param(bad), "n");
  bad = good;
  bad.logprobs = 21;
  EXPECT_EQ(param(bad), "top_logprobs");
  bad = good;
  bad.stop = {"x"};
  EXPECT_EQ(param(bad), "stop");  // no tokenizer here
  EXPECT_EQ(sink->terminal_calls(), 0);
}

TEST(EngineTest, ContextPolicies) {
  EngineOptions options = SmallOptions();
  options.max_model_len = 64;
  for (const ContextPolicy policy : {ContextPolicy::kError, ContextPolicy::kStop}) {
    options.context_policy = policy;
    auto engine = StartFake(options);
    auto sink = std::make_shared<CollectingSink>();
    auto result = engine->Submit(Greedy(Ramp(30, 3), 100), sink);
    if (policy == ContextPolicy::kError) {
      EXPECT_EQ(result.error().param, "max_tokens");
      continue;
    }
    sink->Wait();
    EXPECT_EQ(sink->tokens().size(), 34u);
    EXPECT_EQ(sink->choice().finish, FinishReason::kLength);
  }
}

TEST(EngineTest, RefusesOptionsThatCannotWork) {
  EngineOptions options = SmallOptions();
  options.max_model_len = 300;
  EXPECT_EQ(Engine::Start(options, std::make_unique<FakeModel>(), nullptr).error().param,
            "max_model_len");
  options = SmallOptions();
  options.kv_memory_bytes = 4096;
  EXPECT_EQ(Engine::Start(options, std::make_unique<FakeModel>(), nullptr).error().param,
            "kv_memory");
}

}  // namespace
}  // namespace tare::engine
