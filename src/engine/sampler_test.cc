#include "engine/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace tare::engine {
namespace {

std::optional<GeneratedToken> Pick(std::vector<float> logits, const SamplingOptions& options,
                                   std::uint64_t seed = 1, std::uint64_t position = 0,
                                   std::optional<int> logprobs = std::nullopt,
                                   const TokenHistory* history = nullptr) {
  SampleRequest request;
  request.options = &options;
  request.seed = seed;
  request.position = position;
  request.logprobs = logprobs;
  request.history = history;
  return Sample(logits, request);
}

// Share of draws each token gets.
std::map<int, double> Shares(const std::vector<float>& logits, const SamplingOptions& options) {
  constexpr int kDraws = 20000;
  std::map<int, double> shares;
  for (int i = 0; i < kDraws; ++i) {
    shares[ToInt(Pick(logits, options, 42, static_cast<std::uint64_t>(i))->id)] += 1.0 / kDraws;
  }
  return shares;
}

const std::vector<float> kLogits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};

TEST(SamplerTest, DrawsWithTheModelsProbabilities) {
  const auto shares = Shares(kLogits, {});
  // Standard deviation of a share is at most 0.0035; five of them.
  EXPECT_NEAR(shares.at(0), 0.1, 0.018);
  EXPECT_NEAR(shares.at(1), 0.4, 0.018);
  EXPECT_NEAR(shares.at(2), 0.2, 0.018);
  EXPECT_NEAR(shares.at(3), 0.3, 0.018);
}

TEST(SamplerTest, TemperatureSharpens) {
  SamplingOptions options;
  options.temperature = 0.5f;  // probabilities squared and renormalised: 1, 16, 4, 9 of 30
  const auto shares = Shares(kLogits, options);
  EXPECT_NEAR(shares.at(1), 16.0 / 30, 0.018);
  EXPECT_NEAR(shares.at(3), 9.0 / 30, 0.018);
  options.temperature = 0.0f;
  EXPECT_EQ(Pick(kLogits, options)->id, TokenId{1});
}

TEST(SamplerTest, TopKTopPAndMinPCutTheTail) {
  SamplingOptions options;
  options.top_k = 2;
  auto shares = Shares(kLogits, options);
  EXPECT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares.at(1), 4.0 / 7, 0.018);
  options = {};
  options.top_p = 0.65f;  // 0.4 + 0.3 reach it
  shares = Shares(kLogits, options);
  EXPECT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares.at(3), 3.0 / 7, 0.018);
  options = {};
  options.min_p = 0.45f;  // 0.2 of 0.4 stays, 0.1 of 0.4 goes
  shares = Shares(kLogits, options);
  EXPECT_EQ(shares.size(), 3u);
  EXPECT_EQ(shares.count(0), 0u);
  options = {};
  options.top_k = 3;
  options.top_p = 0.4f;  // 0.4 of the 0.9 that top_k left is enough alone
  EXPECT_EQ(Shares(kLogits, options).size(), 1u);
}

TEST(SamplerTest, PenaltiesUseTheirCounts) {
  TokenHistory history;
  history.AddPrompt(std::vector<TokenId>{TokenId{0}});
  history.AddGenerated(TokenId{1});
  history.AddGenerated(TokenId{1});
  const std::vector<float> logits = {2.0f, 3.0f, 1.9f};
  SamplingOptions options;
  options.temperature = 0.0f;
  options.frequency_penalty = 0.4f;  // 3 - 2 * 0.4 = 2.2: still first
  EXPECT_EQ(Pick(logits, options, 1, 0, std::nullopt, &history)->id, TokenId{1});
  options.presence_penalty = 0.3f;  // 1.9: the prompt's token, not penalised, is first
  EXPECT_EQ(Pick(logits, options, 1, 0, std::nullopt, &history)->id, TokenId{0});
  options = {};
  options.temperature = 0.0f;
  options.repetition_penalty = 2.0f;  // prompt and answer halved
  EXPECT_EQ(Pick(logits, options, 1, 0, std::nullopt, &history)->id, TokenId{2});
  options = {};
  options.temperature = 0.0f;
  options.logit_bias = {{TokenId{2}, 5.0f}, {TokenId{999}, 5.0f}};
  EXPECT_EQ(Pick(logits, options)->id, TokenId{2});
}

TEST(SamplerTest, LogprobsAreTheModelsOwn) {
  SamplingOptions options;
  options.temperature = 0.0f;
  options.logit_bias = {{TokenId{0}, 50.0f}};
  const auto token = Pick(kLogits, options, 1, 0, 2);
  EXPECT_EQ(token->id, TokenId{0});
  EXPECT_NEAR(token->logprob, std::log(0.1f), 1e-5);
  ASSERT_EQ(token->top.size(), 2u);
  EXPECT_EQ(token->top[0].first, TokenId{1});
  EXPECT_NEAR(token->top[0].second, std::log(0.4f), 1e-5);
  EXPECT_EQ(token->top[1].first, TokenId{3});
  EXPECT_TRUE(Pick(kLogits, options, 1, 0, 0)->top.empty());
}

TEST(SamplerTest, ForbiddenTokensAreNeverPicked) {
  const std::vector<TokenId> forbidden = {TokenId{1}, TokenId{3}};
  SamplingOptions options;
  SampleRequest request;
  request.options = &options;
  request.forbidden = forbidden;
  for (std::uint64_t i = 0; i < 200; ++i) {
    std::vector<float> logits = kLogits;
    request.position = i;
    const int id = ToInt(Sample(logits, request)->id);
    EXPECT_TRUE(id == 0 || id == 2);
  }
}

TEST(SamplerTest, DamagedLogitsAreSeen) {
  EXPECT_FALSE(Pick({NAN, NAN}, {}).has_value());
  EXPECT_FALSE(Pick({-INFINITY, -INFINITY}, {}).has_value());
  EXPECT_FALSE(Pick({INFINITY, 0.0f}, {}).has_value());
  EXPECT_EQ(Pick({NAN, 1.0f}, {})->id, TokenId{1});
}

TEST(SamplerTest, DrawsDependOnSeedAndPositionOnly) {
  EXPECT_EQ(UniformAt(1, 2), UniformAt(1, 2));
  EXPECT_NE(UniformAt(1, 2), UniformAt(1, 3));
  EXPECT_NE(UniformAt(1, 2), UniformAt(2, 2));
  EXPECT_EQ(ChoiceSeed(5, 0), 5u);
  EXPECT_NE(ChoiceSeed(5, 1), ChoiceSeed(5, 2));
  double sum = 0.0;
  for (std::uint64_t i = 0; i < 10000; ++i) sum += UniformAt(3, i);
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);
}

// Against the definition, computed the slow way in double precision.
TEST(SamplerTest, TheNucleusIsTheSmallestSetThatReachesItsShare) {
  EXPECT_TRUE(rc::check([](std::uint32_t seed) {
    std::vector<float> logits(300);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>(8.0 * UniformAt(seed, i));
    }
    SamplingOptions options;
    options.top_p = 0.05f + 0.9f * static_cast<float>(UniformAt(seed, 1000));
    std::vector<std::pair<double, int>> order;
    double total = 0.0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      order.emplace_back(-std::exp(static_cast<double>(logits[i])), static_cast<int>(i));
      total += std::exp(static_cast<double>(logits[i]));
    }
    std::sort(order.begin(), order.end());
    std::map<int, double> rank;  // probability before this token
    double before = 0.0;
    for (const auto& [negative, id] : order) {
      rank[id] = before / total;
      before -= negative;
    }
    for (std::uint64_t i = 0; i < 50; ++i) {
      const int id = ToInt(Pick(logits, options, seed, i)->id);
      RC_ASSERT(rank[id] < options.top_p + 1e-5);
    }
  }));
}

}  // namespace
}  // namespace tare::engine
