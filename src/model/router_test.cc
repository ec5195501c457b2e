#include "model/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "model/expert_use.h"

namespace tare::model {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

struct Choice {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Choice Choose(const ExpertsConfig& config, const std::vector<float>& logits,
              const std::vector<float>& bias = {}) {
  Choice choice;
  choice.ids.resize(static_cast<std::size_t>(config.chosen));
  choice.weights.resize(choice.ids.size());
  RouterScratch scratch;
  ChooseExperts(config, logits, bias, scratch, choice.ids, choice.weights);
  return choice;
}

std::vector<float> Logs(std::vector<float> values) {
  for (float& value : values) value = std::log(value);
  return values;
}

// The logit whose sigmoid is `value`.
std::vector<float> Logits(std::vector<float> values) {
  for (float& value : values) value = std::log(value / (1.0f - value));
  return values;
}

TEST(RouterTest, SoftmaxTakesTheLargestWithTheirShares) {
  const ExpertsConfig config{.count = 4, .chosen = 2};
  const Choice choice = Choose(config, Logs({0.1f, 0.4f, 0.2f, 0.3f}));
  EXPECT_THAT(choice.ids, ElementsAre(1, 3));
  EXPECT_THAT(choice.weights, ElementsAre(FloatNear(0.4f, 1e-6f), FloatNear(0.3f, 1e-6f)));
}

TEST(RouterTest, NormalizedWeightsSumToTheScale) {
  ExpertsConfig config{.count = 4, .chosen = 2, .normalize = true};
  EXPECT_THAT(Choose(config, Logs({0.1f, 0.4f, 0.2f, 0.3f})).weights,
              ElementsAre(FloatNear(4.0f / 7.0f, 1e-6f), FloatNear(3.0f / 7.0f, 1e-6f)));
  config.scale = 2.5f;
  EXPECT_THAT(Choose(config, Logs({0.1f, 0.4f, 0.2f, 0.3f})).weights,
              ElementsAre(FloatNear(10.0f / 7.0f, 1e-6f), FloatNear(7.5f / 7.0f, 1e-6f)));
}

TEST(RouterTest, TheScaleMultipliesRawWeightsToo) {
  const ExpertsConfig config{.count = 3, .chosen = 1, .scale = 16.0f};
  EXPECT_THAT(Choose(config, Logs({0.2f, 0.5f, 0.3f})).weights,
              ElementsAre(FloatNear(8.0f, 1e-5f)));
}

// DeepSeek-V3: the bias moves the choice, and does not enter the weights.
TEST(RouterTest, BiasChangesTheChoiceNotTheWeights) {
  const ExpertsConfig config{.count = 4, .chosen = 2, .scoring = RouterScoring::kSigmoid};
  const std::vector<float> logits = Logits({0.6f, 0.5f, 0.3f, 0.2f});
  EXPECT_THAT(Choose(config, logits).ids, ElementsAre(0, 1));
  const Choice moved = Choose(config, logits, {0.0f, 0.0f, 0.0f, 0.9f});
  EXPECT_THAT(moved.ids, ElementsAre(3, 0));
  EXPECT_THAT(moved.weights, ElementsAre(FloatNear(0.2f, 1e-6f), FloatNear(0.6f, 1e-6f)));
}

// DeepSeek-V2's groups count as their best expert, V3's as the sum of their two best.
TEST(RouterTest, GroupsAreTakenByTheirBestOrTheirTwoBest) {
  ExpertsConfig config{
      .count = 6, .chosen = 2, .groups = 3, .chosen_groups = 1, .scoring = RouterScoring::kSigmoid};
  const std::vector<float> logits = Logits({0.9f, 0.1f, 0.7f, 0.6f, 0.5f, 0.4f});
  EXPECT_THAT(Choose(config, logits).ids, ElementsAre(0, 1));
  config.group_of_best_two = true;
  EXPECT_THAT(Choose(config, logits).ids, ElementsAre(2, 3));
  config.chosen_groups = 2;
  EXPECT_THAT(Choose(config, logits).ids, ElementsAre(0, 2));
}

// Biased scores below zero: an expert of a dropped group must not look better than a kept one.
TEST(RouterTest, DroppedGroupsStayOutWhenScoresAreNegative) {
  const ExpertsConfig config{.count = 4,
                             .chosen = 2,
                             .groups = 2,
                             .chosen_groups = 1,
                             .scoring = RouterScoring::kSigmoid,
                             .choice_bias = true,
                             .group_of_best_two = true};
  EXPECT_THAT(Choose(config, Logits({0.5f, 0.4f, 0.3f, 0.2f}), {-2.0f, -2.0f, -3.0f, -3.0f}).ids,
              ElementsAre(0, 1));
}

TEST(RouterTest, TiesGoToTheLowerNumber) {
  const ExpertsConfig config{.count = 5, .chosen = 3};
  EXPECT_THAT(Choose(config, {1.0f, 2.0f, 1.0f, 2.0f, 1.0f}).ids, ElementsAre(1, 3, 0));
}

TEST(RouterTest, LogitsThatAreNotNumbersChooseExpertsThatExist) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int groups : {1, 2}) {
    const ExpertsConfig config{.count = 4, .chosen = 2, .groups = groups, .chosen_groups = 1};
    for (const std::int32_t id : Choose(config, {nan, nan, nan, nan}).ids) {
      EXPECT_GE(id, 0);
      EXPECT_LT(id, 4);
    }
  }
}

// Against a full sort.
RC_GTEST_PROP(RouterProperty, ChoosesAsAFullSortWould, ()) {
  ExpertsConfig config;
  config.count = *rc::gen::inRange(1, 40);
  config.chosen = *rc::gen::inRange(1, config.count + 1);
  std::vector<float> logits;
  for (int i = 0; i < config.count; ++i) {
    logits.push_back(static_cast<float>(*rc::gen::inRange(-20, 20)) * 0.25f);
  }
  std::vector<std::int32_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(config.chosen));
  RC_ASSERT(Choose(config, logits).ids == order);
}

TEST(ExpertBalanceTest, IsOneWhenEven) {
  const std::uint64_t even[] = {5, 5, 5, 5};
  EXPECT_DOUBLE_EQ(BalanceOf(even).imbalance, 1.0);
  EXPECT_DOUBLE_EQ(BalanceOf(even).entropy, 1.0);
  const std::uint64_t one[] = {0, 8, 0, 0};
  EXPECT_DOUBLE_EQ(BalanceOf(one).imbalance, 4.0);
  EXPECT_DOUBLE_EQ(BalanceOf(one).entropy, 0.0);
  const std::uint64_t two[] = {4, 0, 4, 0};
  EXPECT_DOUBLE_EQ(BalanceOf(two).imbalance, 2.0);
  EXPECT_DOUBLE_EQ(BalanceOf(two).entropy, 0.5);
  const std::uint64_t none[] = {0, 0};
  EXPECT_DOUBLE_EQ(BalanceOf(none).imbalance, 1.0);
}

}  // namespace
}  // namespace tare::model
