// Step times against econ's roofline, and the fit against steps whose times are known.
#include "sim/step_time.h"

#include <gtest/gtest.h>

#include "econ/catalog.h"
#include "sim/measured_step_time.h"

namespace tare::sim {
namespace {

econ::Deployment DeploymentOf(const char* model, const char* device, int devices,
                              const char* weights) {
  const econ::Catalog catalog = *econ::Catalog::BuiltIn();
  return {*catalog.FindModel(model),     *catalog.FindDevice(device),  devices,
          *econ::FindPrecision(weights), *econ::FindPrecision("bf16"), 1};
}

constexpr econ::Efficiency kEfficiency{0.7, 0.6, 50e-6, 3e-6, 0, 0, 0};

TEST(StepTimeTest, DecodingIsTheRooflineOfEcon) {
  for (const auto& deployment : {DeploymentOf("llama-3-8b", "a100-80", 1, "bf16"),
                                 DeploymentOf("deepseek-v3", "h200", 8, "fp8")}) {
    const RooflineStepTime time(deployment, kEfficiency, 512);
    for (const double batch : {1.0, 7.0, 64.0, 300.0}) {
      const double expected =
          econ::TimeOf(econ::DecodeWork(deployment, batch, 1500), deployment, kEfficiency).total();
      EXPECT_NEAR(time.Seconds(DecodeLoad(batch, batch * 1500)) / expected, 1, 1e-12)
          << deployment.model.name << " " << batch;
    }
  }
}

TEST(StepTimeTest, APromptIsTheRooflineOfEcon) {
  for (const auto& deployment : {DeploymentOf("llama-3-8b", "a100-80", 1, "bf16"),
                                 DeploymentOf("deepseek-v3", "h200", 8, "fp8")}) {
    const RooflineStepTime time(deployment, kEfficiency, 8192);
    for (const double tokens : {64.0, 1000.0, 8000.0}) {
      const StepLoad load = {tokens, 1, 0, tokens, tokens * tokens / 2};
      const double expected =
          econ::TimeOf(econ::PrefillWork(deployment, tokens), deployment, kEfficiency).total();
      EXPECT_NEAR(time.Seconds(load) / expected, 1, 1e-9) << deployment.model.name << " " << tokens;
    }
  }
}

TEST(StepTimeTest, LoadsCountWhatAPlanSays) {
  engine::StepPlan plan;
  // A decode with 99 tokens before it, and 16 tokens of a prompt of which 32 are computed.
  plan.slices.push_back({SequenceId{1}, 0, 1, 99, 0, 7, 0, true});
  plan.slices.push_back({SequenceId{2}, 1, 16, 32, 7, 3, 0, false});
  const StepLoad load = LoadOf(plan);
  EXPECT_EQ(load.rows, 17);
  EXPECT_EQ(load.logit_rows, 1);
  EXPECT_EQ(load.decode_context, 100);
  EXPECT_EQ(load.prefill_context, 48);
  EXPECT_EQ(load.prefill_pairs, 16 * 32 + 16 * 17 / 2);
}

double Truth(const StepLoad& load) {
  // A body that bends at 8 rows, logits that bend at 4.
  const double body =
      0.004 + 0.0001 * std::min(load.rows, 8.0) + 0.00002 * std::max(0.0, load.rows - 8);
  const double logits = 0.0005 + 0.0002 * std::min(load.logit_rows, 4.0) +
                        0.0001 * std::max(0.0, load.logit_rows - 4);
  return body + logits + 2e-7 * load.decode_context + 3e-9 * load.prefill_pairs;
}

std::vector<TimedSteps> Grid() {
  std::vector<TimedSteps> points;
  const auto add = [&](std::string what, const StepLoad& load) {
    points.push_back({std::move(what), {load}, Truth(load)});
  };
  for (const double batch : {1, 2, 4, 8, 16, 32}) {
    for (const double context : {16, 600}) {
      add(fmt::format("{} at {}", batch, context), DecodeLoad(batch, batch * context));
    }
  }
  for (const double tokens : {2, 4, 8, 16, 32, 64, 128, 256, 512}) {
    add(fmt::format("prompt {}", tokens), {tokens, 1, 0, tokens, tokens * (tokens + 1) / 2});
  }
  add("late prompt", {512, 1, 0, 2048, 512.0 * 1536 + 512.0 * 513 / 2});
  return points;
}

TEST(MeasuredStepTimeTest, FindsTheCoefficientsOfKnownSteps) {
  const std::vector<TimedSteps> points = Grid();
  const StepFit fit = FitSteps(points);
  EXPECT_LT(ErrorOf(fit, points).worst, 0.002);
  EXPECT_NEAR(fit.seconds_per_decode_context, 2e-7, 1e-8);
  EXPECT_NEAR(fit.seconds_per_prefill_pair, 3e-9, 3e-10);
  // A composition no point has: 100 prompt tokens beside 6 decodes.
  const StepLoad mixed = {106, 6, 6 * 300.0, 100, 100.0 * 101 / 2};
  EXPECT_NEAR(fit.Seconds(mixed) / Truth(mixed), 1, 0.02);
  EXPECT_LT(LeaveOneOutError(points).median, 0.02);
}

TEST(MeasuredStepTimeTest, ACalibrationReadsBackAsItWasWritten) {
  Calibration calibration;
  calibration.cpu = "a CPU";
  calibration.threads = 2;
  calibration.model = "m";
  calibration.dtype = "int4";
  calibration.measured_at = "2026-11-30T15:00:00Z";
  calibration.kv_tokens = 4096;
  calibration.request_seconds = 0.001;
  calibration.streaming = {{2, 6}, {0.002, 0.003}};
  calibration.points = Grid();
  calibration.fit = FitSteps(calibration.points);
  calibration.fitted = ErrorOf(calibration.fit, calibration.points);
  calibration.left_out = LeaveOneOutError(calibration.points);
  const auto read = CalibrationFromJson(ToJson(calibration), "c.json");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(read->cpu, "a CPU");
  EXPECT_EQ(read->kv_tokens, 4096u);
  const StepLoad load = DecodeLoad(5, 900);
  EXPECT_EQ(read->fit.Seconds(load), calibration.fit.Seconds(load));
  EXPECT_EQ(read->left_out.worst_what, calibration.left_out.worst_what);
  // Streaming is added to the steps: as learnt, and between the numbers it was learnt for.
  const double bare = calibration.fit.Seconds(load);
  EXPECT_NEAR(MeasuredStepTime(*read).Seconds(load), bare + 0.00275, 1e-12);
}

TEST(MeasuredStepTimeTest, DamagedCalibrationsAreErrors) {
  Calibration calibration;
  calibration.points = Grid();
  calibration.fit = FitSteps(calibration.points);
  const nlohmann::json good = ToJson(calibration);
  ASSERT_TRUE(CalibrationFromJson(good, "c.json").has_value());
  for (const char* key : {"schema", "machine", "fit", "engine", "overheads", "error"}) {
    nlohmann::json bad = good;
    bad[key] = 7;
    EXPECT_FALSE(CalibrationFromJson(bad, "c.json").has_value()) << key;
    bad.erase(key);
    EXPECT_FALSE(CalibrationFromJson(bad, "c.json").has_value()) << key;
  }
  nlohmann::json bad = good;
  bad["fit"]["body"]["at"] = {4, 2, 1};
  EXPECT_FALSE(CalibrationFromJson(bad, "c.json").has_value());
  bad = good;
  bad["fit"]["seconds_per_decode_context"] = -1;
  EXPECT_FALSE(CalibrationFromJson(bad, "c.json").has_value());
  EXPECT_FALSE(CalibrationFromJson(nlohmann::json::array(), "c.json").has_value());
}

}  // namespace
}  // namespace tare::sim
