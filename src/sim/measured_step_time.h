// Step times of an engine on a machine, from steps that were timed there.
//
//   seconds = body(rows) + logits(logit rows) + a · decode context + b · prefill pairs
//
// body and logits are piecewise linear and never fall; what a row costs depends much on how many
// there are (kernels, caches, reading weights once), so their values at the knots are fitted, not
// a formula. The fit minimises squared relative errors with no coefficient below zero.
//
// A Calibration is kept as JSON (schema tare.calibration/1, docs/SIMULATION.md) with the identity
// of the CPU, the model and the engine it was measured with, and the error it leaves.
#pragma once

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "sim/step_time.h"

namespace tare::sim {

// Steps that were timed together.
struct TimedSteps {
  std::string what;  // "8 decode at 512 tokens"
  std::vector<StepLoad> steps;
  double seconds = 0;  // of all of them
};

struct StepCurve {
  std::vector<double> at, seconds;  // knots, rising
  double Value(double x) const;     // linear between, the last slope beyond
};

struct StepFit {
  StepCurve body, logits;
  double seconds_per_decode_context = 0;
  double seconds_per_prefill_pair = 0;
  double Seconds(const StepLoad& load) const;
};

// At least one point is needed.
StepFit FitSteps(std::span<const TimedSteps> points);

struct FitError {
  double median = 0, worst = 0;  // |predicted / measured - 1|
  std::string worst_what;
};
FitError ErrorOf(const StepFit& fit, std::span<const TimedSteps> points);
// Each point predicted by a fit to all the others.
FitError LeaveOneOutError(std::span<const TimedSteps> points);

struct Calibration {
  std::string cpu;  // as the kernel names it
  int threads = 0;
  std::string model, dtype, measured_at, tare_version;
  // The engine it was measured with, and what it would serve with.
  int max_num_seqs = 32, max_num_batched_tokens = 512, prefill_chunk = 128, max_model_len = 2048;
  std::uint64_t kv_tokens = 0;
  double request_seconds = 0, seconds_per_prompt_token = 0, reply_seconds = 0;  // outside steps
  // Added to a step by the number of answers it sends a token to: what streaming takes.
  StepCurve streaming = {{1}, {0}};
  std::vector<TimedSteps> points;
  StepFit fit;
  FitError fitted, left_out;
  double took_s = 0;
};

nlohmann::json ToJson(const Calibration& calibration);
Result<Calibration> CalibrationFromJson(const nlohmann::json& document, const std::string& source);
Result<Calibration> LoadCalibration(const std::filesystem::path& path);

class MeasuredStepTime final : public StepTime {
 public:
  explicit MeasuredStepTime(Calibration calibration) : calibration_(std::move(calibration)) {}
  double Seconds(const StepLoad& load) const override {
    return calibration_.fit.Seconds(load) +
           std::max(0.0, calibration_.streaming.Value(load.logit_rows));
  }
  KnownError Error() const override;
  nlohmann::json Describe() const override;

 private:
  Calibration calibration_;
};

}  // namespace tare::sim
