// The engine on mixtures of experts and latent attention: tiny models of random weights.
#include <gtest/gtest.h>

#include "engine/collecting_sink.h"
#include "engine/engine.h"
#include "model/load.h"
#include "model/tiny_checkpoint.h"

namespace tare::engine {
namespace {

class ExpertModelTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const model::TinyModel& tiny : model::ReadTinyModels()) {
      if (tiny.name == GetParam()) bytes_ = model::TinyGguf(tiny);
    }
    ASSERT_FALSE(bytes_.empty());
  }

  std::unique_ptr<Engine> Start(bool prefix_cache, int max_num_batched_tokens) {
    const auto file = model::GgufFile::Parse(std::as_bytes(std::span(bytes_)), "tiny.gguf").value();
    model::LoadOptions loading;
    loading.dtype = kernels::WeightType::kInt8;
    EngineOptions options;
    options.pool = std::make_shared<ThreadPool>(2);
    loading.pool = options.pool.get();
    auto model = model::LoadModel(file, loading);
    EXPECT_TRUE(model) << model.error().message;
    options.max_num_seqs = 8;
    options.max_num_batched_tokens = max_num_batched_tokens;
    options.prefix_cache = prefix_cache;
    options.batch_window = Nanos{};
    auto engine = Engine::Start(std::move(options), *std::move(model), nullptr);
    EXPECT_TRUE(engine) << engine.error().message;
    return *std::move(engine);
  }

  static std::shared_ptr<CollectingSink> Ask(Engine& engine, int length, int factor) {
    GenerateRequest request;
    for (int i = 0; i < length; ++i) request.prompt.push_back(TokenId{(i * factor + 5) % 160});
    request.max_new_tokens = 24;
    request.sampling.temperature = 0.9f;
    request.ignore_eos = true;
    request.seed = 7;
    auto sink = std::make_shared<CollectingSink>();
    EXPECT_TRUE(engine.Submit(std::move(request), sink));
    return sink;
  }

  std::string bytes_;
};

TEST_P(ExpertModelTest, CompanyChangesNothing) {
  std::vector<TokenId> expected;
  for (const int budget : {64, 8, 23}) {
    for (const int company : {0, 6}) {
      const auto engine = Start(company > 0, budget);
      std::vector<std::shared_ptr<CollectingSink>> others;
      for (int i = 0; i < company; ++i) others.push_back(Ask(*engine, 5 + 9 * i, 1 + i % 3));
      const auto sink = Ask(*engine, 50, 3);
      sink->Wait();
      ASSERT_EQ(sink->tokens().size(), 24u);
      if (expected.empty()) expected = sink->tokens();
      EXPECT_EQ(sink->tokens(), expected) << "budget " << budget << ", company " << company;
      for (const auto& other : others) other->Wait();
    }
  }
}

TEST_P(ExpertModelTest, SaysWhereTokensWent) {
  const auto engine = Start(false, 64);
  Ask(*engine, 40, 3)->Wait();
  EXPECT_TRUE(engine->Drain(Nanos::max()));
  const EngineStats stats = engine->Stats();
  const ExpertStats& experts = stats.experts;
  ASSERT_EQ(experts.tokens.size(), 8u);
  std::uint64_t sum = 0;
  for (const std::uint64_t count : experts.tokens) sum += count;
  // Three experts a token and layer; what warmed the engine up does not count.
  EXPECT_EQ(sum, 3 * stats.computed_tokens * experts.layers.size());
  EXPECT_GT(experts.weight_bytes, 0u);
  EXPECT_GE(experts.touched, 3 * stats.steps * experts.layers.size());
  EXPECT_LE(experts.touched, experts.present);
  EXPECT_DOUBLE_EQ(experts.touched_share, 3.0 / 8.0);  // the last step had one row
  for (const model::ExpertBalance& balance : experts.layers) {
    EXPECT_GE(balance.imbalance, 1.0);
    EXPECT_LE(balance.entropy, 1.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertModelTest,
                         testing::Values("qwen3_moe", "deepseek_v2_lite", "deepseek_v3"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace tare::engine
