// Is the simulation right about this machine? One command calibrates the engine, serves it, loads
// the server, simulates the same loads, and sets the figures side by side.
//
// The loads that are judged are open loops at shares of the capacity: arrivals and lengths are
// drawn once, kept as a trace, and sent to the server and to the simulation alike, so that who
// waits for whom is the server's doing on both sides. Closed loops of equal requests are there on
// demand; in them it is decided by whatever order the users once fell into (docs/SIMULATION.md).
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
  sim::Calibration calibration;                    // of the same model, flags and machine
  std::vector<double> loads = {0.30, 0.60, 0.85};  // of the capacity, in requests a second
  std::vector<int> users;                          // closed loops
  std::vector<int> probe_users = {1, 2, 6};  // rising; the first also gives the time of a request
  Nanos duration = std::chrono::seconds(60), probe_duration = std::chrono::seconds(20);
  int input_tokens = 128, output_tokens = 64;
  double length_cv = 0.5;        // of both lengths, log-normal; open loops only
  std::filesystem::path folder;  // the traces are written here
  std::function<void(const std::string&)> on_progress;  // may be empty
  std::function<bool()> cancelled;                      // may be empty
};

struct ComparedMetric {
  std::string name;  // "output tokens/s"
  double measured = 0, simulated = 0;
  double tolerance = 0;  // share; 0: for the reader, not judged
  double error() const { return simulated / measured - 1; }
  bool judged() const { return tolerance > 0; }
  bool ok() const { return !judged() || (error() >= -tolerance && error() <= tolerance); }
};

struct ComparedLoad {
  std::string name;  // "60 %, 2.8/s", "4 users"
  int users = 0;     // of a closed loop
  double rate = 0;   // of an open one, requests a second
  std::vector<ComparedMetric> metrics;
  store::RunRecord measured, simulated;
};

struct SimValidation {
  sim::Calibration calibration;  // with what the probes added
  double capacity = 0;           // requests a second, simulated: as many users as sequences
  std::vector<ComparedLoad> loads;
  bool ok() const;  // every metric within its tolerance, every measured run valid
};

Result<SimValidation> ValidateSimulation(const SimValidationOptions& options);

nlohmann::json ToJson(const SimValidation& validation);
std::string Table(const SimValidation& validation);

}  // namespace tare::advise
