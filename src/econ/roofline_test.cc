#include "econ/roofline.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "econ/catalog.h"

namespace tare::econ {
namespace {

Deployment Deploy(const char* model, const char* device, int devices, const char* weights) {
  static const Catalog catalog = *Catalog::BuiltIn();
  return {*catalog.FindModel(model), *catalog.FindDevice(device), devices,
          *FindPrecision(weights),   *FindPrecision("bf16"),      1};
}

// Llama-7B reads (6.738 - 0.131) B * 2 = 13.214 GB a step: 3350 / 13.214 = 253.5 tokens/s.
TEST(Roofline, SequentialDecodeIsBoundByBandwidth) {
  const Deployment d = Deploy("llama-7b", "h100", 1, "fp16");
  EXPECT_NEAR(DecodeCeilingTokensPerSecond(d, 1, 0), 253.5, 0.1);
  const StepTime time = TimeOf(DecodeWork(d, 1, 0), d, kPhysicalLimit);
  EXPECT_TRUE(time.memory_bound());
  EXPECT_NEAR(time.compute_seconds, 2 * 6.607e9 / 989e12, 1e-8);
}

// A prompt of 2048 tokens: 2 * (6.607 - 0.131) B * 2048 = 26.53 TFLOP of matrices and
// 2048^2 / 2 * 2 * 256 * 32 * 32 = 1.10 TFLOP of attention; 27.63 / 989 = 27.94 ms.
TEST(Roofline, PrefillIsBoundByCompute) {
  const Deployment d = Deploy("llama-7b", "h100", 1, "fp16");
  EXPECT_NEAR(2048 / PrefillCeilingTokensPerSecond(d, 2048), 27.94e-3, 0.02e-3);
}

TEST(Roofline, SparseModelReadsOnlyTouchedExperts) {
  const Deployment d = Deploy("qwen3-30b-a3b", "h100", 1, "bf16");
  EXPECT_NEAR(DecodeWork(d, 1, 0).weight_bytes, 2 * 3.042e9, 2e6);
  // 1,000 tokens touch every expert: all weights but the input table.
  EXPECT_NEAR(DecodeWork(d, 1000, 0).weight_bytes, 2 * (30.532e9 - 0.311e9), 5e6);
}

TEST(Roofline, TensorParallelismAddsTwoAllReducesALayer) {
  const Deployment d = Deploy("llama-3-70b", "h100", 4, "bf16");
  const StepWork work = DecodeWork(d, 8, 1000);
  EXPECT_EQ(work.collectives, 160);
  // 80 layers * 2 * (2 * 3/4) * 8 tokens * 8192 * 2 B = 31.46 MB.
  EXPECT_NEAR(work.link_bytes_per_device, 31.457e6, 0.01e6);
  EXPECT_EQ(DecodeWork(Deploy("llama-3-8b", "h100", 1, "bf16"), 8, 10).link_bytes_per_device, 0);
}

TEST(Roofline, BatchWhereComputeTakesOver) {
  const Deployment d = Deploy("llama-7b", "a100-80", 1, "fp16");
  // Without cache the balance is peak / bandwidth = 312e12 / 2039e9 = 153 FLOP a byte, one batch
  // row a byte of FP16: near 153.
  const double batch = ComputeBoundBatch(d, 0, 4096);
  EXPECT_NEAR(batch, 153, 5);
  const Saturation saturation = BandwidthSaturation(d, 0, 128, 0.5, 4096);
  EXPECT_NEAR(saturation.batch, 76, 1);
  EXPECT_LT(saturation.compute_used, 0.5);
}

TEST(Roofline, MoreOfAnythingIsNeverSlower) {
  EXPECT_TRUE(rc::check("monotonic in devices, batch and context", [] {
    const char* model = *rc::gen::element("llama-3-8b", "deepseek-v3", "qwen3-30b-a3b");
    const char* precision = *rc::gen::element("bf16", "fp8", "int4");
    const double batch = *rc::gen::inRange(1, 256);
    const double context = *rc::gen::inRange(0, 8192);
    const Deployment one = Deploy(model, "h100", 1, precision);
    Deployment two = one;
    two.devices = 2;
    auto decode = [&](const Deployment& d, double b, double c) {
      const StepTime t = TimeOf(DecodeWork(d, b, c), d, kPhysicalLimit);
      return std::max(t.memory_seconds, t.compute_seconds);
    };
    RC_ASSERT(decode(two, batch, context) < decode(one, batch, context));
    RC_ASSERT(decode(one, batch + 1, context) >= decode(one, batch, context));
    RC_ASSERT(decode(one, batch, context + 1) >= decode(one, batch, context));
    RC_ASSERT(DecodeCeilingTokensPerSecond(one, batch + 1, context) >=
              DecodeCeilingTokensPerSecond(one, batch, context) * (1 - 1e-9));
  }));
}

}  // namespace
}  // namespace tare::econ
