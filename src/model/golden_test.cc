// The real model against the transformers library reading the same file
// (tests/golden/llama_logits.py).
#include <gtest/gtest.h>

#include <algorithm>

#include "base/test_model.h"
#include "model/load.h"
#include "model/tiny_checkpoint.h"

namespace tare::model {
namespace {

constexpr float kTolerance = 2e-3f;

struct GoldenCase {
  std::string prompt;
  std::vector<TokenId> tokens;
  std::vector<std::pair<int, float>> top;
  std::vector<float> sample;
  float rms = 0.0f;
  std::vector<TokenId> greedy;
};

std::vector<TokenId> ToTokens(const nlohmann::json& ids) {
  std::vector<TokenId> tokens;
  for (const int id : ids) tokens.push_back(TokenId{id});
  return tokens;
}

class GoldenTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = FindTestModel();
    if (!path) GTEST_SKIP() << kTestModelMissing;
    const auto text = ReadFile(TARE_SOURCE_DIR "/tests/golden/smollm2_135m_q4_1.json");
    ASSERT_TRUE(text) << text.error().message;
    const auto document = nlohmann::json::parse(*text);
    for (const auto& c : document["cases"]) {
      cases_.push_back({c["prompt"], ToTokens(c["tokens"]), c["top"], c["sample"], c["rms"],
                        ToTokens(c["greedy"])});
    }
    ASSERT_FALSE(cases_.empty());
    auto file = GgufFile::Open(*path);
    ASSERT_TRUE(file) << file.error().message;
    file_.emplace(*std::move(file));
  }

  std::unique_ptr<LanguageModel> Load(std::optional<kernels::WeightType> dtype) {
    auto model = LoadModel(*file_, {.dtype = dtype, .pool = &pool_});
    EXPECT_TRUE(model) << model.error().message;
    return *std::move(model);
  }

  static float WorstOf(const GoldenCase& golden, std::span<const float> logits) {
    float worst = 0.0f;
    for (const auto& [id, value] : golden.top) {
      worst = std::max(worst, std::abs(logits[static_cast<std::size_t>(id)] - value));
    }
    for (std::size_t i = 0; i < golden.sample.size(); ++i) {
      const std::size_t id = i * logits.size() / golden.sample.size();
      worst = std::max(worst, std::abs(logits[id] - golden.sample[i]));
    }
    return worst;
  }

  std::vector<GoldenCase> cases_;
  std::optional<GgufFile> file_;
  ThreadPool pool_{2};
};

std::size_t Largest(std::span<const float> logits) {
  return static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
}

// In F32: the logits after the prompt, and of each greedy step by feeding the known tokens: the
// largest logit must be the next one. Prompt in one go, in chunks and token by token.
TEST_F(GoldenTest, F32MatchesTransformers) {
  const auto model = Load(kernels::WeightType::kF32);
  float worst = 0.0f;
  for (const GoldenCase& golden : cases_) {
    std::vector<TokenId> all = golden.tokens;
    all.insert(all.end(), golden.greedy.begin(), golden.greedy.end() - 1);
    const auto logits = RunTokens(*model, all, 512);
    const std::size_t first = golden.tokens.size() - 1;
    const float difference = WorstOf(golden, logits[first]);
    EXPECT_LT(difference, kTolerance) << golden.prompt;
    worst = std::max(worst, difference);
    double squares = 0.0;
    for (const float value : logits[first]) squares += static_cast<double>(value) * value;
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(logits[first].size())), golden.rms, 1e-3);
    for (std::size_t i = 0; i < golden.greedy.size(); ++i) {
      ASSERT_EQ(static_cast<int>(Largest(logits[first + i])), ToInt(golden.greedy[i]))
          << golden.prompt << ", step " << i;
    }
  }
  RecordProperty("largest_difference", std::to_string(worst));
  std::printf("largest difference to transformers: %.2g\n", static_cast<double>(worst));

  const GoldenCase& one = cases_.front();
  const auto whole = RunTokens(*model, one.tokens, 512);
  for (const int chunk : {1, 3}) {
    const auto parts = RunTokens(*model, one.tokens, chunk);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_LT(MaxDifference(whole[i], parts[i]), 1e-3f) << "chunk " << chunk << ", row " << i;
    }
  }
}

// Narrower types answer alike: the first token of most prompts (one of the eight is a near tie: two
// first tokens 0.1 nats apart, which rounding decides) and a bounded distance.
TEST_F(GoldenTest, NarrowTypesStayClose) {
  struct Bound {
    std::optional<kernels::WeightType> dtype;
    float worst;
    int same_first;  // of 8
  };
  for (const Bound& bound : {Bound{kernels::WeightType::kBf16, 0.5f, 7},
                             Bound{kernels::WeightType::kInt8, 1.5f, 6}, Bound{{}, 1.5f, 6}}) {
    const auto model = Load(bound.dtype);
    int same = 0;
    float worst = 0.0f;
    for (const GoldenCase& golden : cases_) {
      const auto logits = RunTokens(*model, golden.tokens, 512, kernels::KvType::kBf16);
      worst = std::max(worst, WorstOf(golden, logits.back()));
      same += static_cast<int>(Largest(logits.back())) == ToInt(golden.greedy.front());
    }
    const char* name = bound.dtype ? kernels::ToString(*bound.dtype) : "auto";
    std::printf("%s: largest difference %.2g, same first token %d of %zu\n", name,
                static_cast<double>(worst), same, cases_.size());
    EXPECT_LT(worst, bound.worst) << name;
    EXPECT_GE(same, bound.same_first) << name;
  }
}

TEST_F(GoldenTest, EstimateMatchesWhatLoadingTakes) {
  const auto model = Load({});
  const auto need = EstimateMemory(*file_, {}, 0).value();
  EXPECT_NEAR(static_cast<double>(need.weights) / static_cast<double>(model->weight_bytes()), 1.0,
              0.01);
  EXPECT_EQ(model->config().parameters, 134515008u);
  EXPECT_EQ(model->weight_type(), kernels::WeightType::kInt4);
}

}  // namespace
}  // namespace tare::model
