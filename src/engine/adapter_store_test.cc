// Adapters of a serving engine: side by side in one batch, apart in the prefix cache, gone when
// they are unloaded.
#include "engine/adapter_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "engine/collecting_sink.h"
#include "engine/engine.h"
#include "model/load.h"
#include "model/lora_test_folder.h"

namespace tare::engine {
namespace {

class AdapterStoreTest : public testing::Test {
 protected:
  AdapterStoreTest() {
    for (const model::TinyModel& tiny : model::ReadTinyModels()) {
      if (tiny.name == "llama") bytes_ = model::TinyGguf(tiny);
    }
    for (const model::TinyAdapter& one : model::ReadTinyAdapters()) {
      if (one.name == "all") adapter_ = one;
    }
  }

  // One letter for a folder: other weights for another letter.
  Status Load(const std::string& name, const std::string& flavour, bool replace = false) {
    const model::AdapterFolder folder(adapter_, flavour);
    return store_->Load(name, folder.path(), replace);
  }

  void Start(kernels::WeightType type, EngineOptions options = {}) {
    const auto file = model::GgufFile::Parse(std::as_bytes(std::span(bytes_)), "tiny.gguf").value();
    model::LoadOptions loading;
    loading.dtype = type;
    options.pool = std::make_shared<ThreadPool>(2);
    loading.pool = options.pool.get();
    auto model = model::LoadModel(file, loading);
    ASSERT_TRUE(model) << model.error().message;
    options.max_num_seqs = 8;
    options.batch_window = Nanos{};
    store_ = std::make_unique<AdapterStore>((*model)->config(), (*model)->weight_type());
    engine_ = Engine::Start(std::move(options), *std::move(model), nullptr).value();
  }

  GenerateRequest Request(const std::string& adapter, int length, int answer, bool speculate) {
    GenerateRequest request;
    for (int i = 0; i < length; ++i) request.prompt.push_back(TokenId{i % 7 * 20 + 5});
    request.max_new_tokens = answer;
    request.sampling.temperature = 0.0f;
    request.ignore_eos = true;
    request.speculate = speculate;
    if (!adapter.empty()) {
      request.adapter = store_->Find(adapter);
      EXPECT_NE(request.adapter, nullptr);
    }
    return request;
  }
  std::shared_ptr<CollectingSink> Ask(const std::string& adapter, int length, int answer = 24,
                                      bool speculate = true) {
    auto sink = std::make_shared<CollectingSink>();
    EXPECT_TRUE(engine_->Submit(Request(adapter, length, answer, speculate), sink));
    return sink;
  }
  std::vector<TokenId> Answer(const std::string& adapter, int length) {
    const auto sink = Ask(adapter, length);
    sink->Wait();
    return sink->tokens();
  }

  std::string bytes_;
  model::TinyAdapter adapter_;
  std::unique_ptr<AdapterStore> store_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(AdapterStoreTest, DifferentAdaptersShareABatch) {
  for (const auto type : {kernels::WeightType::kF32, kernels::WeightType::kInt8}) {
    Start(type);
    const std::vector<TokenId> base = Answer("", 40);
    ASSERT_TRUE(Load("a", "A"));
    ASSERT_TRUE(Load("b", "B"));
    const std::vector<TokenId> a = Answer("a", 40), b = Answer("b", 40);
    EXPECT_NE(a, base);
    EXPECT_NE(b, base);
    EXPECT_NE(a, b);
    // All six are there before the step thread goes on.
    const auto first = std::make_shared<HoldingSink>();
    ASSERT_TRUE(engine_->Submit(Request("", 1, 1, false), first));
    first->reached.get_future().wait();
    const std::uint64_t steps = engine_->Stats().steps;
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (const char* adapter : {"a", "", "b", "a", "", "b"}) sinks.push_back(Ask(adapter, 40));
    first->go_on.set_value();
    for (std::size_t i = 0; i < sinks.size(); ++i) {
      sinks[i]->Wait();
      const auto& expected = i % 3 == 0 ? a : i % 3 == 1 ? base : b;
      EXPECT_EQ(sinks[i]->tokens(), expected) << i;
    }
    EXPECT_TRUE(engine_->Drain(Nanos::max()));
    // One after the other takes 24 each; a few more than 24 as prompts may begin apart.
    EXPECT_LT(engine_->Stats().steps - steps, 36u);
    engine_.reset();
  }
}

// A page computed with one adapter is never another's, nor that of a former version of its name.
TEST_F(AdapterStoreTest, CachedPagesAreKeptApart) {
  Start(kernels::WeightType::kF32);
  const auto cached = [&](const std::string& adapter) {
    const auto sink = Ask(adapter, 100);
    sink->Wait();
    return sink->usage().cached_tokens;
  };
  ASSERT_TRUE(Load("a", "A"));
  ASSERT_TRUE(Load("b", "B"));
  EXPECT_EQ(cached(""), 0);
  EXPECT_EQ(cached("a"), 0);
  EXPECT_EQ(cached("b"), 0);
  EXPECT_GT(cached(""), 0);
  EXPECT_GT(cached("a"), 0);
  const std::vector<TokenId> old = Answer("a", 100);
  ASSERT_TRUE(Load("a", "C", /*replace=*/true));
  EXPECT_EQ(cached("a"), 0);
  EXPECT_NE(Answer("a", 100), old);
  ASSERT_TRUE(Load("a", "A", /*replace=*/true));
  EXPECT_EQ(cached("a"), 0);
  EXPECT_EQ(Answer("a", 100), old);
}

TEST_F(AdapterStoreTest, GuessingAheadChangesNothing) {
  EngineOptions options;
  options.speculation = {.most = 6, .adaptive = false};
  Start(kernels::WeightType::kF32, options);
  ASSERT_TRUE(Load("a", "A"));
  const auto plain = Ask("a", 60, 80, /*speculate=*/false);
  plain->Wait();
  const auto other = Ask("", 60, 80);
  const auto guessed = Ask("a", 60, 80);
  guessed->Wait();
  other->Wait();
  EXPECT_EQ(guessed->tokens(), plain->tokens());
  EXPECT_GT(guessed->usage().drafted_tokens, 0);
}

TEST_F(AdapterStoreTest, UnloadedMemoryIsFreedWithTheLastAnswer) {
  Start(kernels::WeightType::kF32);
  ASSERT_TRUE(Load("a", "A"));
  const std::weak_ptr<const model::LoraAdapter> watched = store_->Find("a");
  const std::size_t bytes = watched.lock()->bytes();
  const auto whole = Ask("a", 20, 400);
  whole->Wait();
  EXPECT_EQ(store_->Stats().loaded_bytes, bytes);

  const auto running = Ask("a", 20, 400);
  running->WaitForChunks(1);
  ASSERT_TRUE(store_->Unload("a"));
  EXPECT_EQ(store_->Find("a"), nullptr);
  EXPECT_TRUE(store_->List().empty());
  AdapterStats stats = store_->Stats();
  EXPECT_EQ(stats.loaded, 0u);
  EXPECT_EQ(stats.loaded_bytes, 0u);
  running->Wait();
  EXPECT_EQ(running->tokens(), whole->tokens());
  EXPECT_TRUE(engine_->Drain(Nanos::max()));
  EXPECT_TRUE(watched.expired());
  stats = store_->Stats();
  EXPECT_EQ(stats.retiring, 0u);
  EXPECT_EQ(stats.retiring_bytes, 0u);
  EXPECT_EQ(stats.unloads, 1u);
}

TEST_F(AdapterStoreTest, CountsWhatAnswersKeep) {
  Start(kernels::WeightType::kF32);
  ASSERT_TRUE(Load("a", "A"));
  const auto kept = store_->Find("a");
  ASSERT_TRUE(Load("a", "B", /*replace=*/true));
  EXPECT_NE(store_->Find("a"), kept);
  const AdapterStats stats = store_->Stats();
  EXPECT_EQ(stats.loaded, 1u);
  EXPECT_EQ(stats.retiring, 1u);
  EXPECT_EQ(stats.retiring_bytes, kept->bytes());
  EXPECT_EQ(stats.loads, 2u);
  EXPECT_GT(stats.load_seconds, 0.0);
}

TEST_F(AdapterStoreTest, RefusesByName) {
  Start(kernels::WeightType::kF32);
  ASSERT_TRUE(Load("a", "A"));
  const Status taken = Load("a", "B");
  ASSERT_FALSE(taken);
  EXPECT_THAT(taken.error().message, testing::HasSubstr("'a' is loaded already"));
  for (const char* name : {"", "two words", "line\n", "\xff"}) {
    const Status bad = Load(name, "A");
    ASSERT_FALSE(bad) << name;
    EXPECT_EQ(bad.error().param, "lora_name");
  }
  EXPECT_EQ(store_->Load("x", "/nowhere", false).error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(store_->Unload("x").error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(store_->Stats().refused_loads, 6u);
}

// KV memory is taken as sequences grow, but it is promised from the start.
TEST_F(AdapterStoreTest, MemoryPromisedToPagesIsNotForAdapters) {
  Start(kernels::WeightType::kF32);
  const model::AdapterFolder folder(adapter_);
  const std::uint64_t most =
      MostAdapterBytes(folder.path(), engine_->config(), kernels::WeightType::kF32);
  EXPECT_GT(most, 0u);
  EXPECT_EQ(MostAdapterBytes("/nowhere", engine_->config(), kernels::WeightType::kF32), 0u);
  model::MemoryNeed need{.weights = 10 << 20, .kv = 50 << 20, .working = 4 << 20};
  AdapterRoom room{need, need.total() + most};
  store_ = std::make_unique<AdapterStore>(engine_->config(), kernels::WeightType::kF32, room);
  ASSERT_TRUE(Load("a", "A"));
  const std::size_t bytes = store_->Stats().loaded_bytes;
  EXPECT_LE(bytes, most);

  const Status refused = Load("b", "B");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kResourceExhausted);
  need.adapters = bytes + most;
  EXPECT_THAT(refused.error().message,
              testing::AllOf(testing::HasSubstr("adapter 'b' may take " + FormatBytes(most)),
                             testing::HasSubstr("weights 10.0 MiB + KV 50.0 MiB + working memory "
                                                "4.00 MiB + adapters " +
                                                FormatBytes(need.adapters) + " = " +
                                                FormatBytes(need.total()) + " > " +
                                                FormatBytes(room.available)),
                             testing::HasSubstr("unload others")));
  // Nothing of the refused one is counted; an old version counts while somebody has it.
  const auto kept = store_->Find("a");
  ASSERT_TRUE(store_->Unload("a"));
  EXPECT_FALSE(Load("b", "B"));
}

TEST_F(AdapterStoreTest, RoomComesBackWithTheLastUser) {
  Start(kernels::WeightType::kF32);
  const model::AdapterFolder folder(adapter_);
  const std::uint64_t most =
      MostAdapterBytes(folder.path(), engine_->config(), kernels::WeightType::kF32);
  store_ = std::make_unique<AdapterStore>(engine_->config(), kernels::WeightType::kF32,
                                          AdapterRoom{{}, most});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Load("a", "A"));
    ASSERT_TRUE(store_->Unload("a"));
    // One that cannot be read leaves nothing behind either.
    std::filesystem::resize_file(folder.path() / "adapter_model.safetensors", 100);
    EXPECT_FALSE(store_->Load("b", folder.path(), false));
  }
}

}  // namespace
}  // namespace tare::engine
