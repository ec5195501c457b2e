#include "econ/calibration.h"

#include <gtest/gtest.h>

#include "econ/measured_points.h"

namespace tare::econ {
namespace {

// Points made with known factors are fitted back to predictions that agree.
TEST(Calibration, RecoversKnownFactors) {
  const Catalog catalog = *Catalog::BuiltIn();
  const Efficiency truth{0.65, 0.45, 80e-6, 0, 0.4, 0.5, 0.05};
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
  EXPECT_LT(held_out.first_token_median, plain.first_token_median);
  EXPECT_NEAR(held_out.output_token_mean, stated.output_token_mean, 0.01);
  EXPECT_NEAR(held_out.output_token_median, stated.output_token_median, 0.01);
  EXPECT_NEAR(held_out.first_token_median, stated.first_token_median, 0.02);
  const Efficiency fitted = FitEfficiency(points);
  EXPECT_NEAR(fitted.bandwidth, CalibratedEfficiency().bandwidth, 0.002);
  EXPECT_NEAR(fitted.compute, CalibratedEfficiency().compute, 0.002);
}

}  // namespace
}  // namespace tare::econ
