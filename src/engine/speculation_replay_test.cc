// The promise of speculation: not one token, log probability or finish reason differs from plain
// decoding. Random requests are answered by engines that differ in nothing else.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "base/test_model.h"
#include "engine/collecting_sink.h"
#include "engine/cpu_executor.h"
#include "engine/engine.h"
#include "engine/fake_model.h"
#include "engine/local_model.h"
#include "model/gguf.h"
#include "model/load.h"
#include "model/tiny_checkpoint.h"

namespace tare::engine {
namespace {

constexpr SpeculationOptions kOff{};
constexpr SpeculationOptions kAuto{.most = kMostDrafts};
constexpr SpeculationOptions kAlways{.most = 9, .adaptive = false};

EngineOptions Options(const SpeculationOptions& speculation) {
  EngineOptions options;
  options.max_num_seqs = 6;
  options.max_num_batched_tokens = 64;
  options.kv_type = kernels::KvType::kF32;
  options.batch_window = Nanos{};
  options.speculation = speculation;
  options.seed = 1;
  return options;
}

// Requests of all kinds, most of them for text that repeats itself: their logits are tilted
// towards a few tokens, so that guesses are often right. The last one repeats a single token
// whatever the seed, so that some guess is right in every run.
std::vector<GenerateRequest> RandomRequests(unsigned seed, int vocab, int count, int longest) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<GenerateRequest> requests(static_cast<std::size_t>(count));
  for (GenerateRequest& r : requests) {
    const int few = 1 + below(4);
    const int length = 1 + below(longest / 2);
    for (int i = 0; i < length; ++i) {
      r.prompt.push_back(TokenId{below(3) == 0 ? below(vocab) : i % few});
    }
    r.max_new_tokens = 1 + below(longest / 2);
    if (below(4) != 0) {
      for (int i = 0; i < few; ++i) r.sampling.logit_bias.push_back({TokenId{i}, 60.0f});
    }
    r.sampling.temperature = below(2) == 0 ? 0.0f : 0.2f + 0.1f * static_cast<float>(below(15));
    if (below(3) == 0) r.sampling.top_p = 0.8f;
    if (below(3) == 0) r.sampling.top_k = 1 + below(8);
    if (below(3) == 0) r.sampling.frequency_penalty = 0.3f;
    if (below(3) == 0) r.sampling.presence_penalty = -0.5f;
    if (below(3) == 0) r.sampling.repetition_penalty = 1.2f;
    if (below(3) == 0) r.stop_tokens = {TokenId{below(few)}};
    if (below(3) == 0) r.min_new_tokens = below(*r.max_new_tokens);
    if (below(2) == 0) r.logprobs = below(4);
    if (below(4) == 0) r.n = 2 + below(2);
    if (below(4) == 0) r.use_prefix_cache = false;
    r.pinned_tokens = below(20);
    r.seed = random();
  }
  GenerateRequest& sure = requests.back();
  sure = {};
  sure.prompt.assign(40, TokenId{1});
  sure.sampling.temperature = 0.0f;
  sure.sampling.logit_bias.push_back({TokenId{1}, 100.0f});
  sure.max_new_tokens = 40;
  return requests;
}

struct Answers {
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  EngineStats stats;
};

Answers AnswerAll(Engine& engine, const std::vector<GenerateRequest>& requests) {
  Answers answers;
  for (const GenerateRequest& request : requests) {
    answers.sinks.push_back(std::make_shared<CollectingSink>());
    const auto handle = engine.Submit(request, answers.sinks.back());
    EXPECT_TRUE(handle.has_value()) << handle.error().message;
    if (!handle.has_value()) return answers;  // its sink would never be told the end
  }
  for (const auto& sink : answers.sinks) sink->Wait();
  EXPECT_TRUE(engine.Drain(Nanos::max()));
  answers.stats = engine.Stats();
  EXPECT_EQ(answers.stats.pages_used, 0u);
  return answers;
}

// The first difference, in words; empty when there is none.
std::string Difference(const std::vector<GenerateRequest>& requests, const Answers& a,
                       const Answers& b) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (int n = 0; n < requests[i].n; ++n) {
      const CollectingSink::Choice& x = a.sinks[i]->choice(n);
      const CollectingSink::Choice& y = b.sinks[i]->choice(n);
      const std::string where = fmt::format("request {} choice {}: ", i, n);
      if (x.tokens != y.tokens) {
        const auto at =
            std::mismatch(x.tokens.begin(), x.tokens.end(), y.tokens.begin(), y.tokens.end());
        return where + fmt::format("tokens differ from the {}th of {} and {} on",
                                   at.first - x.tokens.begin(), x.tokens.size(), y.tokens.size());
      }
      if (x.text != y.text) return where + "text";
      if (x.finish != y.finish) return where + "finish reason";
      for (std::size_t t = 0; t < x.details.size(); ++t) {
        if (x.details[t].logprob != y.details[t].logprob || x.details[t].top != y.details[t].top) {
          return where + fmt::format("log probabilities of token {}", t);
        }
      }
    }
    if (a.sinks[i]->usage().generated_tokens != b.sinks[i]->usage().generated_tokens) {
      return fmt::format("request {}: tokens counted", i);
    }
  }
  return {};
}

std::unique_ptr<Engine> StartFake(EngineOptions options) {
  auto engine = Engine::Start(std::move(options), std::make_unique<FakeModel>(), nullptr);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return std::move(*engine);
}

RC_GTEST_PROP(SpeculationReplayTest, AnswersAreThoseOfPlainDecoding, ()) {
  const auto seed = *rc::gen::arbitrary<unsigned>();
  const auto requests = RandomRequests(seed, 61, 12, 160);
  EngineOptions options = Options(kOff);
  const auto variant = *rc::gen::inRange(0, 3);
  if (variant == 1) options.kv_memory_bytes = 20 * PageBytes(FakeModel().kv_shape(options.kv_type));
  if (variant == 2) options.max_num_batched_tokens = 8;
  if (variant == 1) options.max_model_len = 170;
  const Answers plain = AnswerAll(*StartFake(options), requests);
  for (const SpeculationOptions& speculation : {kAuto, kAlways}) {
    options.speculation = speculation;
    const Answers guessed = AnswerAll(*StartFake(options), requests);
    RC_ASSERT(Difference(requests, plain, guessed) == "");
    if (!speculation.adaptive && variant != 2) RC_ASSERT(guessed.stats.accepted_drafts > 0u);
  }
  RC_ASSERT(plain.stats.drafted_tokens == 0u);
}

// Rings shift the text under the look-up's feet.
RC_GTEST_PROP(SpeculationReplayTest, RingContextsToo, ()) {
  const auto seed = *rc::gen::arbitrary<unsigned>();
  auto requests = RandomRequests(seed, 61, 4, 160);
  for (GenerateRequest& request : requests) request.max_new_tokens = 300;
  EngineOptions options = Options(kOff);
  options.context_policy = ContextPolicy::kRing;
  options.max_model_len = 96;
  const Answers plain = AnswerAll(*StartFake(options), requests);
  options.speculation = kAlways;
  const Answers guessed = AnswerAll(*StartFake(options), requests);
  RC_ASSERT(Difference(requests, plain, guessed) == "");
  RC_ASSERT(guessed.stats.accepted_drafts > 0u);
}

// Real arithmetic of every family the tiny checkpoints have, in every weight type.
TEST(SpeculationReplayTest, TinyModelsOfEveryFamily) {
  const std::vector<model::TinyModel> tiny = model::ReadTinyModels();
  ASSERT_FALSE(tiny.empty());
  unsigned seed = 1;
  for (const model::TinyModel& one : tiny) {
    const std::string bytes = model::TinyGguf(one);
    for (const auto type : {kernels::WeightType::kInt4, kernels::WeightType::kInt8,
                            kernels::WeightType::kBf16, kernels::WeightType::kF32}) {
      const auto requests = RandomRequests(++seed, 160, 10, 200);
      const auto answer = [&](const SpeculationOptions& speculation) {
        EngineOptions options = Options(speculation);
        options.kv_type = seed % 2 == 0 ? kernels::KvType::kBf16 : kernels::KvType::kInt8;
        options.pool = std::make_shared<ThreadPool>(2);
        model::LoadOptions loading;
        loading.dtype = type;
        loading.pool = options.pool.get();
        auto file = model::GgufFile::Parse(std::as_bytes(std::span(bytes)), "tiny.gguf");
        EXPECT_TRUE(file.has_value());
        auto loaded = model::LoadModel(*file, loading);
        EXPECT_TRUE(loaded.has_value()) << loaded.error().message;
        auto engine = Engine::Start(std::move(options), *std::move(loaded), nullptr);
        EXPECT_TRUE(engine.has_value()) << engine.error().message;
        return AnswerAll(**engine, requests);
      };
      const Answers plain = answer(kOff), guessed = answer(kAlways);
      EXPECT_EQ(Difference(requests, plain, guessed), "")
          << one.name << " in " << kernels::ToString(type);
      EXPECT_GT(guessed.stats.accepted_drafts, 0u) << one.name;
    }
  }
}

class RealSpeculationTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = FindTestModel();
    if (!path_) GTEST_SKIP() << kTestModelMissing;
  }

  LocalModel Load(const std::string& dtype, const SpeculationOptions& speculation) {
    LocalModelOptions options;
    options.model = path_->string();
    options.dtype = dtype;
    options.threads = 2;
    options.engine.batch_window = Nanos{};
    options.engine.kv_memory_bytes = std::size_t{512} << 20;
    options.engine.max_model_len = 1024;
    options.engine.max_num_seqs = 4;
    options.engine.speculation = speculation;
    auto local = LoadLocalModel(std::move(options));
    EXPECT_TRUE(local.has_value()) << local.error().message;
    return *std::move(local);
  }

  // Text that is repeated, with stop strings, sampling and penalties among the ways to ask for it.
  static std::vector<GenerateRequest> Requests(const model::Text& text) {
    std::vector<GenerateRequest> requests;
    const char* const kAsked[] = {
        "Repeat this text word for word: The quick brown fox jumps over the lazy dog, and the lazy "
        "dog sleeps on under the old apple tree behind the house of the quick brown fox.",
        "Copy: alpha beta gamma delta alpha beta gamma delta alpha beta gamma delta",
        "Write one sentence about the sea.",
    };
    for (const char* asked : kAsked) {
      for (const bool sampled : {false, true}) {
        model::ChatInput input;
        const std::string messages = fmt::format(R"([{{"role":"user","content":"{}"}}])", asked);
        input.messages_json = messages;
        GenerateRequest request;
        request.prompt = *text.EncodeChat(input);
        request.max_new_tokens = 40;
        request.logprobs = 2;
        request.sampling.temperature = 0.0f;
        if (sampled) {
          request.sampling.temperature = 0.7f;
          request.sampling.top_p = 0.9f;
          request.sampling.frequency_penalty = 0.1f;
          request.seed = 5;
          request.stop = {"tree behind", "ocean"};
          request.n = 2;
        }
        requests.push_back(std::move(request));
      }
    }
    return requests;
  }

  std::optional<std::filesystem::path> path_;
};

TEST_P(RealSpeculationTest, AnswersAreThoseOfPlainDecoding) {
  const LocalModel plain_model = Load(GetParam(), kOff);
  const auto requests = Requests(*plain_model.text);
  const Answers plain = AnswerAll(*plain_model.engine, requests);
  const Answers guessed = AnswerAll(*Load(GetParam(), kAlways).engine, requests);
  EXPECT_EQ(Difference(requests, plain, guessed), "");
  EXPECT_GT(guessed.stats.accepted_drafts, 10u);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// A model of this size takes minutes under a sanitizer; the tiny ones cover every type.
INSTANTIATE_TEST_SUITE_P(Dtype, RealSpeculationTest, testing::Values("int8"));
#else
INSTANTIATE_TEST_SUITE_P(Dtype, RealSpeculationTest, testing::Values("int4", "int8", "bf16"));
#endif

}  // namespace
}  // namespace tare::engine
