// Parameter counts against the totals the models' publishers state, bytes against shapes worked
// out by hand.
#include "econ/model_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "econ/catalog.h"
#include "econ/links.h"
#include "econ/memory.h"

namespace tare::econ {
namespace {

const Catalog& BuiltIn() {
  static const Catalog catalog = [] {
    Result<Catalog> loaded = Catalog::BuiltIn();
    EXPECT_TRUE(loaded.has_value()) << loaded.error().message;
    return *std::move(loaded);
  }();
  return catalog;
}
ModelFacts Model(const char* name) { return *BuiltIn().FindModel(name); }

struct Expected {
  const char* name;
  double total, active, per_token;  // billions, as published or recomputed independently
  double kv_bytes;                  // a token, 16 bits
};

class Counts : public ::testing::TestWithParam<Expected> {};

TEST_P(Counts, AgreeWithThePublishedTotals) {
  const ModelFacts model = Model(GetParam().name);
  EXPECT_NEAR(CountParameters(model).total() / 1e9, GetParam().total, 0.0006);
  EXPECT_NEAR(ActiveParameters(model) / 1e9, GetParam().active, 0.0006);
  EXPECT_NEAR(MatmulParametersPerToken(model) / 1e9, GetParam().per_token, 0.0006);
  EXPECT_DOUBLE_EQ(KvBytesPerToken(model, *FindPrecision("bf16")), GetParam().kv_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Catalogue, Counts,
    ::testing::Values(Expected{"deepseek-v2-lite", 15.706, 2.661, 2.451, 31'104},
                      Expected{"deepseek-v2", 235.741, 21.376, 20.852, 69'120},
                      Expected{"deepseek-v3", 671.026, 37.552, 36.626, 70'272},
                      Expected{"kimi-k2", 1026.408, 32.862, 31.687, 70'272},
                      Expected{"llama-3-70b", 70.554, 70.554, 69.503, 327'680},
                      Expected{"qwen2-72b", 72.706, 72.706, 71.460, 327'680},
                      Expected{"qwen3-30b-a3b", 30.532, 3.353, 3.042, 98'304},
                      Expected{"qwen3-235b-a22b", 235.094, 22.191, 21.568, 192'512},
                      Expected{"llama-3-8b", 8.030, 8.030, 7.505, 131'072},
                      Expected{"qwen2-7b", 7.616, 7.616, 7.071, 57'344},
                      Expected{"deepseek-coder-33b", 33.343, 33.343, 33.112, 253'952},
                      Expected{"smollm2-135m", 0.1345, 0.1345, 0.1345, 23'040}),
    [](const auto& expected) {
      std::string name = expected.param.name;
      for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
      }
      return name;
    });

// 1026.41 B at 16 bits is 2.053 TB; the 236 B model's 439 GiB; 70 B at 4 bits near 33 GiB.
TEST(Weights, BytesByPrecision) {
  EXPECT_NEAR(WeightBytes(Model("deepseek-v2"), *FindPrecision("fp16")) / (1 << 30), 439.1, 0.1);
  EXPECT_NEAR(WeightBytes(Model("kimi-k2"), *FindPrecision("bf16")) / 1e12, 2.0528, 0.0001);
  // Llama-3-70B, AWQ: (70.554 - 2.103 tables) B * 4.15625 / 8 + 2.103 B * 2 = 35.56 + 4.21 GB.
  EXPECT_NEAR(WeightBytes(Model("llama-3-70b"), *FindPrecision("int4")) / 1e9, 39.77, 0.02);
  EXPECT_FALSE(FindPrecision("int3").has_value());
}

// One token touches k experts; many touch all; 32 tokens of top 8 in 128: 128 (1 - (15/16)^32).
TEST(Experts, DistinctOnesTouched) {
  const ModelFacts model = Model("qwen3-30b-a3b");
  EXPECT_NEAR(ExpectedDistinctExperts(model, 1), 8, 1e-9);
  EXPECT_NEAR(ExpectedDistinctExperts(model, 32), 111.77, 0.01);
  EXPECT_NEAR(ExpectedDistinctExperts(model, 1e6), 128, 1e-9);
  EXPECT_EQ(ExpectedDistinctExperts(Model("llama-3-8b"), 5), 0);
}

TEST(Kv, LatentAttentionAgainstExpanded) {
  const Precision half = *FindPrecision("bf16");
  EXPECT_DOUBLE_EQ(ExpandedKvBytesPerToken(Model("deepseek-v2"), half), 4'915'200);
  EXPECT_DOUBLE_EQ(ExpandedKvBytesPerToken(Model("kimi-k2"), half), 2'498'560);
}

// The rule memory / (2 hidden 2) gives 85.9e9 / 16,384 = 5.24 M tokens for an 8B on 80 GiB; the
// layers and the weights leave about 0.46 M.
TEST(Memory, RuleOfThumbForgetsTheLayers) {
  const MemoryFit fit =
      FitMemory(Model("llama-3-8b"), *FindPrecision("bf16"), *FindPrecision("bf16"),
                *BuiltIn().FindDevice("A100"), 1, 0.9, 2048, 32);
  EXPECT_TRUE(fit.weights_fit);
  EXPECT_NEAR(fit.rule_of_thumb_tokens, 5.243e6, 0.001e6);
  // (77.309 - 16.061 weights - 0.167 + 0.016 working) GB / 131,072 B.
  EXPECT_NEAR(fit.max_tokens, 0.4659e6, 0.002e6);
  EXPECT_NEAR(fit.rule_ratio, 11.25, 0.1);
}

TEST(Memory, TwoHundredThirtySixBillionDoNotFitOneDevice) {
  const DeviceFacts device = *BuiltIn().FindDevice("h100");
  const MemoryFit fit = FitMemory(Model("deepseek-v2"), *FindPrecision("int4"),
                                  *FindPrecision("bf16"), device, 1, 1.0, 1, 1);
  EXPECT_FALSE(fit.weights_fit);
  EXPECT_EQ(fit.max_tokens, 0);
  EXPECT_NEAR(WidestBitsThatFit(CountParameters(Model("deepseek-v2")).total(), device.memory_bytes),
              2.915, 0.001);
}

// 32K tokens of a 70B's cache are 10.74 GB: 168 ms over PCIe 5 at its peak.
TEST(Links, MovingACache) {
  const LinkMove move = MoveCache(Model("llama-3-70b"), *FindPrecision("bf16"), 32'768, 64e9, 1.0);
  EXPECT_DOUBLE_EQ(move.bytes, 10'737'418'240.0);
  EXPECT_NEAR(move.seconds_at_peak, 0.16777, 1e-5);
  EXPECT_NEAR(move.link_used, 0.16777, 1e-5);
}

// Two devices, two of four experts: both on one device with probability 2 * C(2,2)/C(4,2) = 1/3.
TEST(Links, ExpertsSpreadOverDevices) {
  EXPECT_NEAR(ExpectedTargetDevices(4, 2, 2), 2 - 1 / 3.0, 1e-12);
  EXPECT_NEAR(ExpectedTargetDevices(256, 8, 1), 1, 1e-12);
  const ModelFacts model = Model("deepseek-v3");
  EXPECT_GT(AllToAllBytesPerToken(model, 64), AllToAllBytesPerToken(model, 8));
  EXPECT_EQ(AllToAllBytesPerToken(model, 1), 0);
}

TEST(CatalogFile, UnknownNamesOfferTheNearest) {
  auto missing = BuiltIn().FindModel("deepseek-v4");
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message, ::testing::HasSubstr("deepseek-v"));
  EXPECT_TRUE(BuiltIn().FindDevice("a100_sxm").has_value());
  EXPECT_TRUE(BuiltIn().FindModel("DEEPSEEK-AI/deepseek-v3").has_value());
}

TEST(CatalogFile, EveryDeviceFigureHasSourceAndDate) {
  for (const DeviceFacts& device : BuiltIn().devices()) {
    EXPECT_GE(device.provenance.size(), 4u) << device.name;
    for (const Provenance& figure : device.provenance) {
      EXPECT_FALSE(figure.source.empty()) << device.name << " " << figure.figure;
      EXPECT_EQ(figure.date.size(), 10u) << device.name << " " << figure.figure;
    }
  }
  for (const ModelFacts& model : BuiltIn().models()) {
    EXPECT_FALSE(model.source.empty()) << model.name;
    EXPECT_EQ(model.date.size(), 10u) << model.name;
  }
  auto loaded = Catalog::Load(std::filesystem::path(TARE_SOURCE_DIR) / "catalog");
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->models().size(), BuiltIn().models().size());
  EXPECT_EQ(loaded->devices().size(), BuiltIn().devices().size());
}

}  // namespace
}  // namespace tare::econ
