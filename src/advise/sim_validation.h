// Is the simulation right about this machine? One command calibrates the engine, serves it, loads
// the server, simulates the same loads, and sets the figures side by side.
//
// Some loads (`probe_users`) are used to measure what calibration cannot see: the time of a request
// outside the steps, and what streaming takes from the steps on a machine that also runs the
// client. They are not among the loads that are judged.
//
// Thread safety: blocks the calling thread, which must live as long (the server dies with it).
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/measured_step_time.h"
#include "store/run_record.h"

namespace tare::advise {

struct SimValidationOptions {
  std::string program;  // the tare binary
  std::filesystem::path model;
  std::vector<std::string> serve_flags;
  std::filesystem::path server_log;
  sim::Calibration calibration;  // of the same model, flags and machine
  std::vector<int> users = {1, 4, 8};
  std::vector<int> probe_users = {1, 2, 6};  // rising; the first also gives the time of a request
  Nanos duration = std::chrono::seconds(20);
  int input_tokens = 128, output_tokens = 64;
  std::function<void(const std::string&)> on_progress;  // may be empty
  std::function<bool()> cancelled;                      // may be empty
};

struct ComparedMetric {
  std::string name;  // "output tokens/s"
  double measured = 0, simulated = 0;
  double tolerance = 0;  // share
  double error() const { return simulated / measured - 1; }
  bool ok() const { return error() >= -tolerance && error() <= tolerance; }
};

struct ComparedLoad {
  int users = 0;
  std::vector<ComparedMetric> metrics;
  store::RunRecord measured, simulated;
};

struct SimValidation {
  sim::Calibration calibration;  // with what the probe added
  std::vector<ComparedLoad> loads;
  bool ok() const;  // every metric within its tolerance, every measured run valid
};

Result<SimValidation> ValidateSimulation(const SimValidationOptions& options);

nlohmann::json ToJson(const SimValidation& validation);
std::string Table(const SimValidation& validation);

// The load of a measured run, simulated with the calibration: the same users, lengths (as the
// server counted them), shared beginnings, duration and seed.
Result<store::RunRecord> SimulateLike(const store::RunRecord& measured, int users,
                                      const SimValidationOptions& options,
                                      const sim::Calibration& calibration);

}  // namespace tare::advise
