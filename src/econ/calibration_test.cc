#include "econ/calibration.h"

#include <gtest/gtest.h>

#include "econ/measured_points.h"

namespace tare::econ {
namespace {

// Points made with known factors are fitted back to predictions that agree.
TEST(Calibration, RecoversKnownFactors) {
  const Catalog catalog = *Catalog::BuiltIn();
  const Efficiency truth{0.65, 0.45, 80e-6, 0, 0, 1, 0.5, 0.05};
  std::vector<MeasuredPoint> points;
  for (const char* device : {"a10", "a100-80", "h100"}) {
    for (double batch : {1.0, 8.0, 64.0}) {
      MeasuredPoint point;
      point.group = device;
      point.deployment = {*catalog.FindModel("llama-3-8b"), *catalog.FindDevice(device), 1,
                          *FindPrecision("bf16"),           *FindPrecision("bf16"),      1};
      point.load = {batch, 1024, 256, false};
      const ServingPrediction p = Predict(point.deployment, point.load, truth);
      point.seconds_per_output_token = p.seconds_per_output_token;
      point.seconds_to_first_token = p.seconds_to_first_token;
      points.push_back(std::move(point));
    }
  }
  const PredictionError error = ErrorOf(points, FitEfficiency(points));
  EXPECT_LT(error.output_token_mean, 0.02);
  EXPECT_LT(error.first_token_mean, 0.10);
}

// On the measured servers the calibrated roofline beats the plain one on devices it has not seen,
// and the figures the program prints are the ones the data gives.
TEST(Calibration, HeldOutErrorIsTheOneStated) {
  const std::filesystem::path data = MeasuredDataDir(TARE_SOURCE_DIR);
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "no measured data at " << data;
  const auto points = MeasuredPoints(data, *Catalog::BuiltIn());
  ASSERT_GE(points.size(), 40u);
  const PredictionError plain = ErrorOf(points, kPlainRoofline);
  const PredictionError held_out = HeldOutError(points);
  const PredictionError stated = CalibratedHeldOutError();
  EXPECT_LT(held_out.output_token_mean, 0.6 * plain.output_token_mean);
  EXPECT_LT(held_out.output_token_median, 0.6 * plain.output_token_median);
  EXPECT_LT(held_out.first_token_mean, 0.7 * plain.first_token_mean);
  EXPECT_LT(held_out.first_token_median, 0.7 * plain.first_token_median);
  const PredictionError stated_plain = PlainRooflineError();
  for (auto figure : {&PredictionError::output_token_mean, &PredictionError::output_token_median,
                      &PredictionError::first_token_mean, &PredictionError::first_token_median}) {
    EXPECT_NEAR(held_out.*figure, stated.*figure, 0.01);
    EXPECT_NEAR(plain.*figure, stated_plain.*figure, 0.001);
  }
  EXPECT_EQ(held_out.output_tokens, stated.output_tokens);
  EXPECT_EQ(held_out.first_tokens, stated.first_tokens);
  const Efficiency fitted = FitEfficiency(points);
  EXPECT_NEAR(fitted.bandwidth, CalibratedEfficiency().bandwidth, 0.002);
  EXPECT_NEAR(fitted.compute, CalibratedEfficiency().compute, 0.002);
  EXPECT_NEAR(fitted.first_token_wait, CalibratedEfficiency().first_token_wait, 0.002);
}

// It holds on each data set apart, in the mean and in the median, so that no set hides another.
TEST(Calibration, BeatsThePlainRooflineOnEachDataSetWithFirstTokens) {
  const std::filesystem::path data = MeasuredDataDir(TARE_SOURCE_DIR);
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "no measured data at " << data;
  const auto points = MeasuredPoints(data, *Catalog::BuiltIn());
  for (const std::string source : {"served", "pilot"}) {
    std::vector<MeasuredPoint> subset;
    for (const MeasuredPoint& point : points) {
      if (point.source == source) subset.push_back(point);
    }
    const PredictionError plain = ErrorOf(subset, kPlainRoofline);
    const PredictionError held_out = HeldOutError(points, source);
    ASSERT_GT(held_out.first_tokens, 10) << source;
    EXPECT_LT(held_out.output_token_mean, 0.6 * plain.output_token_mean) << source;
    EXPECT_LT(held_out.output_token_median, 0.6 * plain.output_token_median) << source;
    EXPECT_LT(held_out.first_token_mean, 0.8 * plain.first_token_mean) << source;
    EXPECT_LT(held_out.first_token_median, 0.8 * plain.first_token_median) << source;
  }
}

// A sequence among others waits for each of their prompts once, before or after its first token.
TEST(Prediction, TimeOfOtherPromptsIsSpentOnce) {
  const Catalog catalog = *Catalog::BuiltIn();
  const Deployment d{*catalog.FindModel("llama-3-8b"), *catalog.FindDevice("h100"), 1,
                     *FindPrecision("bf16"),           *FindPrecision("bf16"),      1};
  Efficiency e = kPlainRoofline;
  e.prefill_interference = 1;
  e.first_token_wait = 0.5;
  const ServingLoad load{32, 1024, 128, false};
  const ServingPrediction p = Predict(d, load, e);
  const double spent = p.seconds_to_first_token + 128 * p.seconds_per_output_token;
  const double work =
      p.prefill.total() + 129 * p.decode.total() + TimeOf(PrefillWork(d, 1024, 31), d, e).total();
  EXPECT_NEAR(spent / work, 1, 0.02);  // prompts that share a step share a read of the weights
}

}  // namespace
}  // namespace tare::econ
