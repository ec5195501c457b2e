#include "eval/perplexity.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <vector>

#include "eval/input_statistics.h"

namespace tare::eval {
namespace {

// A bigram "model": the logits after token t are a fixed row, so every figure is known by hand.
// It also checks what it is asked: rows in order, positions continuous within a window.
class BigramModel final : public model::LanguageModel {
 public:
  explicit BigramModel(std::vector<std::vector<float>> rows, int context = 64)
      : rows_(std::move(rows)) {
    config_.vocab = static_cast<int>(rows_.size());
    config_.context_length = context;
    config_.layers = config_.kv_heads = 1;
    config_.head_dim = 16;
  }
  const model::ModelConfig& config() const override { return config_; }
  std::size_t weight_bytes() const override { return 0; }
  kernels::WeightType weight_type() const override { return kernels::WeightType::kF32; }
  kernels::KvShape kv_shape(kernels::KvType type) const override { return {1, 1, 16, type}; }
  void Forward(const model::ForwardInput& input, kernels::KvPages&,
               std::span<float> logits) override {
    ASSERT_EQ(input.sequences.size(), 1u);
    const auto& sequence = input.sequences[0];
    ASSERT_TRUE(sequence.start == 0 || sequence.start == next_) << "rows must continue a window";
    next_ = sequence.start + sequence.num_rows;
    ASSERT_LE(static_cast<std::size_t>(next_), sequence.pages.size() * kernels::kTokensPerPage);
    float* out = logits.data();
    for (int row : input.logit_rows) {
      const auto& source =
          rows_[static_cast<std::size_t>(ToInt(input.tokens[static_cast<std::size_t>(row)]))];
      out = std::copy(source.begin(), source.end(), out);
    }
  }

 private:
  std::vector<std::vector<float>> rows_;
  model::ModelConfig config_;
  int next_ = 0;
};

std::vector<TokenId> Tokens(std::initializer_list<int> ids) {
  std::vector<TokenId> tokens;
  for (int id : ids) tokens.push_back(TokenId{id});
  return tokens;
}

TEST(Perplexity, UniformModelHasVocabularySize) {
  BigramModel model({{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}});
  const auto text = Tokens({0, 1, 2, 3, 2, 1});
  const auto result = MeasurePerplexity(model, nullptr, text, {.window = 4, .progress = {}});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->scored_tokens, 5u);
  EXPECT_NEAR(result->perplexity, 4.0, 1e-6);
  EXPECT_FALSE(result->divergence);
}

TEST(Perplexity, KnownDistribution) {
  // After token 0: p = (1/4, 3/4); after token 1: p = (1/2, 1/2).
  BigramModel model({{0.0f, std::log(3.0f)}, {0.0f, 0.0f}});
  const auto text = Tokens({0, 1, 0});  // -ln(3/4) - ln(1/2), over two tokens
  const auto result = MeasurePerplexity(model, nullptr, text, {.window = 8, .progress = {}});
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->nll.mean, (0.2876820724 + 0.6931471806) / 2, 1e-6);
}

TEST(Perplexity, DivergenceOfKnownPair) {
  BigramModel reference({{0.0f, std::log(3.0f)}, {0.0f, std::log(3.0f)}});
  BigramModel model({{0.0f, 0.0f}, {0.0f, 0.0f}});
  const auto text = Tokens({0, 1, 0, 1});
  const auto result = MeasurePerplexity(model, &reference, text, {.window = 8, .progress = {}});
  ASSERT_TRUE(result && result->divergence);
  // 1/4 ln(1/2) + 3/4 ln(3/2) = 0.1308120
  EXPECT_NEAR(result->divergence->kl.mean, 0.1308120, 1e-6);
  EXPECT_NEAR(result->divergence->kl_p99, 0.1308120, 1e-6);
  // One window shows no scatter, which is not a scatter of nought.
  EXPECT_FALSE(result->interval95);
  EXPECT_EQ(MeanText(result->divergence->kl), "0.13081");
  EXPECT_TRUE(ToJson(result->divergence->kl)["standard_error"].is_null());
  EXPECT_NE(WhyNoInterval(*result), "");
}

TEST(Perplexity, AnIntervalFromHowWindowsDiffer) {
  // Windows of 3 score 2 + 1 + 1 tokens; after 0 each costs ln 4, after 1 each ln 2.
  BigramModel model({{0.0f, -std::log(3.0f)}, {0.0f, 0.0f}});
  const auto result =
      MeasurePerplexity(model, nullptr, Tokens({0, 1, 0, 1, 0}), {.window = 3, .progress = {}});
  ASSERT_TRUE(result && result->nll.standard_error && result->interval95);
  const double a = std::log(4.0), b = std::log(2.0), mean = (a + b) / 2;
  // Sums a + b, a, b with 2, 1, 1 tokens; residuals 0, (a − b)/2, (b − a)/2.
  const double expected = std::sqrt(2 * std::pow((a - b) / 2, 2) * 3 / 2) / 4;
  EXPECT_NEAR(result->nll.mean, mean, 1e-6);
  EXPECT_NEAR(*result->nll.standard_error, expected, 1e-6);
  EXPECT_EQ(WhyNoInterval(*result), "");
  EXPECT_EQ(MeanText({0.25, 0.5}), "0.25000 +/- 0.98000");
}

TEST(Perplexity, IdenticalModelsDoNotDiverge) {
  const std::vector<std::vector<float>> rows = {{1, 2, 3}, {3, 1, 2}, {-9, 40, 0}};
  BigramModel a(rows), b(rows);
  const auto result =
      MeasurePerplexity(a, &b, Tokens({0, 1, 2, 1, 0, 2}), {.window = 3, .progress = {}});
  ASSERT_TRUE(result && result->divergence);
  EXPECT_NEAR(result->divergence->kl.mean, 0, 1e-12);
  EXPECT_EQ(result->divergence->top1_agreement, 1.0);
}

TEST(Perplexity, RefusesImpossibleQuestions) {
  BigramModel model({{0, 0}, {0, 0}}, 16);
  EXPECT_EQ(MeasurePerplexity(model, nullptr, Tokens({0}), {.progress = {}}).error().param,
            "window");
  EXPECT_EQ(
      MeasurePerplexity(model, nullptr, Tokens({0}), {.window = 8, .progress = {}}).error().param,
      "text");
  BigramModel other({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, 16);
  EXPECT_EQ(
      MeasurePerplexity(model, &other, Tokens({0, 1}), {.window = 8, .progress = {}}).error().param,
      "reference");
}

// A bigram model's answer cannot depend on how the text is cut, and every token is scored once.
// Which another model's tokenizer gives; not an abort in the middle of the embedding table.
TEST(Perplexity, RefusesTokensTheModelDoesNotKnow) {
  BigramModel model({{0.0f, 0.0f}, {0.0f, 0.0f}});
  for (const int unknown : {2, 30000, -1}) {
    const auto text = Tokens({0, 1, unknown});
    const auto result = MeasurePerplexity(model, nullptr, text, {.window = 8, .progress = {}});
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find(std::to_string(unknown)), std::string::npos);
    EXPECT_FALSE(ReadInWindows(model, text, 8, {}));
  }
}

RC_GTEST_PROP(Perplexity, WindowDoesNotMatterToABigramModel, ()) {
  const int length = *rc::gen::inRange(2, 400);
  const int window = *rc::gen::inRange(2, 200);
  std::vector<TokenId> text;
  for (int i = 0; i < length; ++i) text.push_back(TokenId{*rc::gen::inRange(0, 3)});
  const std::vector<std::vector<float>> rows = {{0.5f, 2, -1}, {1, 1, 3}, {0, -2, 0.25f}};
  double expected = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    const auto& row = rows[static_cast<std::size_t>(ToInt(text[i - 1]))];
    double sum = 0;
    for (float logit : row) sum += std::exp(static_cast<double>(logit));
    expected += std::log(sum) - static_cast<double>(row[static_cast<std::size_t>(ToInt(text[i]))]);
  }
  BigramModel model(rows, 200);
  const auto result = MeasurePerplexity(model, nullptr, text, {.window = window, .progress = {}});
  RC_ASSERT(result.has_value());
  RC_ASSERT(result->scored_tokens == text.size() - 1);
  RC_ASSERT(std::abs(result->nll.mean - expected / static_cast<double>(text.size() - 1)) < 1e-6);
}

}  // namespace
}  // namespace tare::eval
