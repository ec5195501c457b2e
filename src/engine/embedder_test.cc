#include "engine/embedder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <future>
#include <mutex>

#include "engine/local_embedder.h"
#include "model/tiny_encoder.h"

namespace tare::engine {
namespace {

namespace fs = std::filesystem;

// An encoder that computes nothing but knows what each step held, and waits to be let go on.
class FakeEncoder final : public model::Encoder {
 public:
  FakeEncoder() {
    config_.hidden = 2;
    config_.vocab = 100;
    config_.context_length = 16;
    sentence_.max_length = 8;
  }
  const model::ModelConfig& config() const override { return config_; }
  const model::SentenceConfig& sentence() const override { return sentence_; }
  std::size_t weight_bytes() const override { return 0; }
  kernels::WeightType weight_type() const override { return kernels::WeightType::kF32; }
  // A vector is an input's first token and its length.
  void Forward(std::span<const TokenId> tokens, std::span<const int> lengths,
               std::span<float> out) override {
    std::vector<int> firsts;
    std::size_t at = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      firsts.push_back(ToInt(tokens[at]));
      out[2 * i] = static_cast<float>(firsts.back());
      out[2 * i + 1] = static_cast<float>(lengths[i]);
      at += static_cast<std::size_t>(lengths[i]);
    }
    if (++steps_ == 1) {
      warm_up.assign(lengths.begin(), lengths.end());
      return;
    }
    if (steps_ == 2) {
      begun.set_value();
      go_on.get_future().wait();
    }
    if (on_step) on_step(firsts);
    std::lock_guard lock(mutex_);
    steps.push_back(std::move(firsts));
  }

  std::promise<void> begun, go_on;  // of the first step
  std::vector<std::vector<int>> steps;
  std::vector<int> warm_up;  // its lengths
  std::function<void(const std::vector<int>& firsts)> on_step;

 private:
  model::ModelConfig config_;
  model::SentenceConfig sentence_;
  std::mutex mutex_;
  int steps_ = 0;
};

std::vector<TokenId> Input(int first, int length) {
  return std::vector<TokenId>(static_cast<std::size_t>(length), TokenId{first});
}

struct Fixture {
  explicit Fixture(EmbedderOptions options = {.max_step_tokens = 6}) {
    auto owned = std::make_unique<FakeEncoder>();
    encoder = owned.get();
    embedder = *Embedder::Start(std::move(options), std::move(owned), nullptr);
  }
  // The vectors, or nothing when there are none.
  std::future<std::vector<float>> Ask(std::vector<std::vector<TokenId>> inputs,
                                      Tier tier = Tier::kInteractive) {
    auto promise = std::make_shared<std::promise<std::vector<float>>>();
    const auto handle =
        embedder->Submit({std::move(inputs), tier}, [promise](Result<std::vector<float>> v) {
          promise->set_value(v ? *std::move(v) : std::vector<float>());
        });
    EXPECT_TRUE(handle) << handle.error().message;
    return promise->get_future();
  }
  // A request under way whose step does not end before LetGo.
  std::future<std::vector<float>> Hold() {
    auto held = Ask({Input(99, 1)});
    encoder->begun.get_future().wait();
    return held;
  }
  void LetGo() { encoder->go_on.set_value(); }

  FakeEncoder* encoder;
  std::unique_ptr<Embedder> embedder;
};

TEST(EmbedderTest, StepsTakeOneInputOfEachRequestInTurn) {
  Fixture f;
  auto held = f.Hold();
  auto many = f.Ask({Input(1, 2), Input(2, 2), Input(3, 2), Input(4, 2), Input(5, 2)});
  auto one = f.Ask({Input(10, 2)});
  auto late = f.Ask({Input(20, 2)}, Tier::kBatch);
  f.LetGo();
  EXPECT_EQ(many.get(), (std::vector<float>{1, 2, 2, 2, 3, 2, 4, 2, 5, 2}));
  EXPECT_EQ(one.get(), (std::vector<float>{10, 2}));
  EXPECT_EQ(late.get(), (std::vector<float>{20, 2}));
  EXPECT_EQ(f.encoder->steps, (std::vector<std::vector<int>>{{99}, {1, 10, 2}, {3, 4, 5}, {20}}));
  // The last answer is heard before it is counted; draining waits for both.
  ASSERT_TRUE(f.embedder->Drain(SteadyClock().Now() + std::chrono::minutes(1)));
  const EmbedderStats stats = f.embedder->Stats();
  EXPECT_EQ(stats.requests_finished, 4u);
  EXPECT_EQ(stats.inputs, 8u);
  EXPECT_EQ(stats.tokens, 15u);
  EXPECT_EQ(stats.waiting_inputs, 0u);
  EXPECT_EQ(stats.waiting_requests, 0);
}

TEST(EmbedderTest, BatchRequestsWaitForInteractiveOnesUntilTheyAreOld) {
  for (const bool old : {false, true}) {
    Fixture f({.max_step_tokens = 2, .batch_tier_ageing = Nanos(old ? 0 : 3'600'000'000'000)});
    auto held = f.Hold();
    auto batch = f.Ask({Input(1, 2), Input(2, 2)}, Tier::kBatch);
    auto interactive = f.Ask({Input(5, 2), Input(6, 2)});
    f.LetGo();
    batch.get();
    interactive.get();
    using Steps = std::vector<std::vector<int>>;
    EXPECT_EQ(f.encoder->steps,
              old ? (Steps{{99}, {5}, {1}, {6}, {2}}) : (Steps{{99}, {5}, {6}, {1}, {2}}));
  }
}

TEST(EmbedderTest, EveryBatchRequestAgesWhereverItIsInTheQueue) {
  ManualClock clock;
  Fixture f({.max_step_tokens = 2, .clock = &clock});
  f.encoder->on_step = [&](const std::vector<int>& firsts) {
    if (firsts.front() == 1) clock.Set(std::chrono::seconds(11));  // when `young` is in front
  };
  auto held = f.Hold();
  auto old = f.Ask({Input(1, 2), Input(2, 2), Input(3, 2)}, Tier::kBatch);
  clock.Set(std::chrono::seconds(5));
  auto young = f.Ask({Input(11, 2), Input(12, 2)}, Tier::kBatch);
  f.LetGo();
  old.get();
  young.get();
  EXPECT_EQ(f.encoder->steps, (std::vector<std::vector<int>>{{99}, {1}, {2}, {3}, {11}, {12}}));
}

TEST(EmbedderTest, WarmsUpWithAFullStep) {
  EXPECT_EQ(Fixture({.max_step_tokens = 6}).encoder->warm_up, std::vector<int>{6});
  EXPECT_EQ(Fixture({.max_step_tokens = 20}).encoder->warm_up, (std::vector<int>{8, 8}));
  EXPECT_EQ(Fixture({.max_step_tokens = 0}).encoder->warm_up, std::vector<int>{1});
}

TEST(EmbedderTest, AnInputLongerThanAStepHasOneOfItsOwn) {
  Fixture f({.max_step_tokens = 4});
  auto held = f.Hold();
  auto both = f.Ask({Input(1, 3), Input(2, 8)});
  f.LetGo();
  both.get();
  EXPECT_EQ(f.encoder->steps, (std::vector<std::vector<int>>{{99}, {1}, {2}}));
}

TEST(EmbedderTest, WhatIsCancelledIsNotComputed) {
  Fixture f;
  auto held = f.Hold();
  bool answered = false;
  const auto handle = f.embedder->Submit({{Input(1, 1)}}, [&](auto) { answered = true; });
  auto kept = f.Ask({Input(2, 1)});
  f.embedder->Cancel(*handle);
  f.embedder->Cancel(*handle);
  f.LetGo();
  kept.get();
  EXPECT_FALSE(answered);
  EXPECT_EQ(f.encoder->steps, (std::vector<std::vector<int>>{{99}, {2}}));
  const EmbedderStats stats = f.embedder->Stats();
  EXPECT_EQ(stats.requests_cancelled, 1u);
  EXPECT_EQ(stats.waiting_inputs, 0u);
}

TEST(EmbedderTest, WhatIsCancelledBeforeItsAnswerHasNone) {
  Fixture f;
  auto held = f.Hold();
  Embedder::Handle second{};
  bool answered = false;
  const auto first = f.embedder->Submit({{Input(1, 1)}}, [&](auto) { f.embedder->Cancel(second); });
  ASSERT_TRUE(first);
  second = *f.embedder->Submit({{Input(2, 1)}}, [&](auto) { answered = true; });
  f.LetGo();
  EXPECT_TRUE(f.embedder->Drain(Nanos::max()));
  EXPECT_EQ(f.encoder->steps, (std::vector<std::vector<int>>{{99}, {1, 2}}));
  EXPECT_FALSE(answered);
  const EmbedderStats stats = f.embedder->Stats();
  EXPECT_EQ(stats.requests_finished, 2u);
  EXPECT_EQ(stats.requests_cancelled, 1u);
  EXPECT_EQ(stats.waiting_requests, 0);
  EXPECT_EQ(stats.waiting_inputs, 0u);
}

TEST(EmbedderTest, RefusesWhatTheModelCannotTake) {
  Fixture f({.max_step_tokens = 6, .max_queued = 1});
  const auto refused = [&](std::vector<std::vector<TokenId>> inputs, const char* word) {
    const auto handle = f.embedder->Submit({std::move(inputs)}, [](auto) {});
    ASSERT_FALSE(handle) << word;
    EXPECT_EQ(handle.error().param, "input");
    EXPECT_NE(handle.error().message.find(word), std::string::npos) << handle.error().message;
  };
  refused({}, "nothing");
  refused({{}}, "no tokens");
  refused({Input(1, 1), Input(1, 9)}, "input 1 has 9 tokens; this model takes at most 8");
  refused({Input(100, 1)}, "0 to 99");
  refused({Input(-1, 1)}, "-1");
  auto held = f.Hold();
  const auto full = f.embedder->Submit({{Input(1, 1)}}, [](auto) {});
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().kind, ErrorKind::kUnavailable);
  f.LetGo();
  held.get();
  EXPECT_TRUE(f.embedder->Drain(SteadyClock().Now() + std::chrono::seconds(60)));
  const auto late = f.embedder->Submit({{Input(1, 1)}}, [](auto) {});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::kUnavailable);
}

TEST(EmbedderTest, DrainDropsWhatIsNotDoneInTime) {
  Fixture f;
  auto held = f.Hold();
  auto waiting = f.Ask({Input(1, 1)});
  auto drained = std::async(std::launch::async, [&] { return f.embedder->Drain(Nanos{0}); });
  EXPECT_TRUE(waiting.get().empty());
  f.LetGo();  // what is under way ends, and draining waits for it
  EXPECT_FALSE(drained.get());
  EXPECT_EQ(held.get(), (std::vector<float>{99, 1}));
  EXPECT_EQ(f.embedder->Stats().waiting_requests, 0);
}

TEST(EmbedderTest, DrainingIsWholeWhenNothingIsDropped) {
  Fixture f;
  auto held = f.Hold();
  auto drained = std::async(std::launch::async, [&] { return f.embedder->Drain(Nanos{0}); });
  f.LetGo();
  EXPECT_TRUE(drained.get());
  EXPECT_EQ(held.get(), (std::vector<float>{99, 1}));
}

TEST(EmbedderTest, EmbedsTextsWithARealEncoder) {
  std::string pattern = testing::TempDir() + "tare-embedder-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const fs::path folder = pattern;
  model::WriteTinyEncoder(model::ReadTinyEncoders().front(), folder, "", 8);
  EXPECT_TRUE(IsEmbeddingModel(folder));
  EXPECT_FALSE(IsEmbeddingModel(folder / "config.json"));
  LocalModelOptions options;
  options.model = folder.string();
  options.threads = 2;
  const auto local = LoadLocalEmbedder(options);
  ASSERT_TRUE(local) << local.error().message;
  Embedder& embedder = *local->embedder;
  EXPECT_EQ(embedder.max_length(), 8);
  EXPECT_EQ(embedder.dimension(), 48);
  const std::string texts[] = {"a b c", "abc", "a b c"};
  const auto vectors = embedder.Embed(texts);
  ASSERT_TRUE(vectors) << vectors.error().message;
  ASSERT_EQ(vectors->size(), 3u * 48u);
  EXPECT_TRUE(std::equal(vectors->begin(), vectors->begin() + 48, vectors->begin() + 96));
  EXPECT_FALSE(std::equal(vectors->begin(), vectors->begin() + 48, vectors->begin() + 48));

  const std::string book[] = {"a b c d e f g"};  // nine tokens
  const auto too_long = embedder.Embed(book);
  ASSERT_FALSE(too_long);
  EXPECT_NE(too_long.error().message.find("has 9 tokens; this model takes at most 8"),
            std::string::npos);
  auto tokens = *embedder.Encode(book[0]);
  embedder.Truncate(tokens, 4);
  EXPECT_EQ(tokens, (std::vector<TokenId>{TokenId{2}, TokenId{5}, TokenId{6}, TokenId{3}}));

  options.adapters = {{"a", "/nowhere"}};
  const auto adapted = LoadLocalEmbedder(options);
  ASSERT_FALSE(adapted);
  EXPECT_EQ(adapted.error().param, "lora");
  EXPECT_NE(adapted.error().message.find("leave out --lora"), std::string::npos);
  options.adapters.clear();

  options.engine.max_model_len = 65;
  EXPECT_FALSE(LoadLocalEmbedder(options));
  options.engine.max_model_len = 64;
  const auto longer = LoadLocalEmbedder(options);
  ASSERT_TRUE(longer) << longer.error().message;
  EXPECT_EQ(longer->embedder->max_length(), 64);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tare::engine
