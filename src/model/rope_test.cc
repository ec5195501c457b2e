#include "model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tare::model {
namespace {

// Relative closeness of a few entries; the expected ones are transformers' float32 results.
void ExpectNear(float value, double expected) {
  EXPECT_NEAR(value / expected, 1.0, 2e-5) << expected;
}

TEST(RopeTest, PlainFrequencies) {
  const auto table = MakeRopeTable({.theta = 10000.0f}, 8, {}).value();
  ASSERT_EQ(table.half(), 4);
  ExpectNear(table.frequencies[0], 1.0);
  ExpectNear(table.frequencies[1], 0.1);
  ExpectNear(table.frequencies[3], 0.001);
  EXPECT_EQ(table.magnitude, 1.0f);
  EXPECT_EQ(table.score_scale, 1.0f);
}

TEST(RopeTest, Llama3Scaling) {
  RopeConfig config{.theta = 500000.0f, .scaling = RopeScaling::kLlama3, .factor = 8.0f};
  config.original_context = 32;
  const auto table = MakeRopeTable(config, 64, {}).value();
  ExpectNear(table.frequencies[0], 1.0);
  ExpectNear(table.frequencies[1], 0.5435407161712646);
  ExpectNear(table.frequencies[2], 0.21466737985610962);
  ExpectNear(table.frequencies[3], 0.07814816385507584);
  ExpectNear(table.frequencies[31], 3.76732259610435e-07);
}

TEST(RopeTest, GenericYarn) {
  RopeConfig config{.theta = 1e6f, .scaling = RopeScaling::kYarn, .factor = 4.0f};
  config.original_context = 32;
  const auto table = MakeRopeTable(config, 16, {}).value();
  ExpectNear(table.frequencies[0], 1.0);
  EXPECT_NEAR(table.frequencies[1], 4.4457e-02, 1e-6);
  EXPECT_NEAR(table.frequencies[7], 1.4059e-06, 1e-10);
  ExpectNear(table.magnitude, 1.138629436111989);
  EXPECT_EQ(table.score_scale, 1.0f);
}

// The published DeepSeek and Kimi models: where the ramp lies and what multiplies the scores.
TEST(RopeTest, DeepSeekYarn) {
  struct Model {
    const char* name;
    float theta, factor, beta_fast, mscale;
    int low, high;
    double score_scale;
  };
  const Model models[] = {
      {"DeepSeek-V3", 1e4f, 40.0f, 32.0f, 1.0f, 10, 23, 1.8738542},
      {"DeepSeek-V2-Lite", 1e4f, 40.0f, 32.0f, 0.707f, 10, 23, 1.5896262},
      {"Kimi-K2", 5e4f, 32.0f, 1.0f, 1.0f, 19, 20, 1.8132604},
      {"Kimi-K2.5", 5e4f, 64.0f, 32.0f, 1.0f, 8, 20, 2.0047397},
  };
  for (const Model& m : models) {
    RopeConfig config{.theta = m.theta, .scaling = RopeScaling::kYarn, .factor = m.factor};
    config.original_context = 4096;
    config.beta_fast = m.beta_fast;
    config.mscale = config.mscale_all_dim = m.mscale;
    const auto table = MakeRopeTable(config, 64, {}).value();
    const auto plain = MakeRopeTable({.theta = m.theta}, 64, {}).value();
    for (int i = 0; i < 32; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const float ratio = table.frequencies[at] / plain.frequencies[at];
      if (i <= m.low) {
        EXPECT_FLOAT_EQ(ratio, 1.0f) << m.name << " " << i;
      } else if (i >= m.high) {
        EXPECT_NEAR(ratio * m.factor, 1.0f, 1e-5) << m.name << " " << i;
      } else {
        EXPECT_LT(ratio, 1.0f) << m.name << " " << i;
        EXPECT_GT(ratio * m.factor, 1.0f) << m.name << " " << i;
      }
    }
    EXPECT_FLOAT_EQ(table.magnitude, 1.0f) << m.name;
    EXPECT_NEAR(table.score_scale, m.score_scale, 2e-6) << m.name;
  }
}

TEST(RopeTest, DivisorsSlowEachPair) {
  const std::vector<float> divisors = {1.0f, 2.0f};
  const auto table = MakeRopeTable({.theta = 10000.0f}, 4, divisors).value();
  ExpectNear(table.frequencies[1], 0.005);
  EXPECT_FALSE(MakeRopeTable({}, 8, divisors));
  EXPECT_FALSE(MakeRopeTable({}, 4, std::vector<float>{1.0f, 0.0f}));
}

TEST(RopeTest, RefusesSenselessScaling) {
  EXPECT_FALSE(MakeRopeTable({.scaling = RopeScaling::kLinear, .factor = 0.0f}, 4, {}));
  EXPECT_FALSE(MakeRopeTable({.scaling = RopeScaling::kYarn, .factor = 2.0f}, 4, {}));
}

}  // namespace
}  // namespace tare::model
