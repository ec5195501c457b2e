// Whether a run may be believed: each check names what it looked at and what it found. A run is
// valid when every check holds. Pure functions; the limits and their reasons are in docs/LOAD.md.
#pragma once

#include <vector>

#include "load/figures.h"
#include "load/generator.h"
#include "load/runner.h"
#include "store/run_record.h"

namespace tare::load {

struct ClockReadings {  // taken together
  Nanos monotonic{0}, wall{0}, boot{0};
  static ClockReadings Now();
};

struct RunEvidence {
  const LoadOptions* options = nullptr;
  const Recorder* recorder = nullptr;
  const std::vector<ThreadMeasurement>* threads = nullptr;
  Window window;
  const store::RunSummary* summary = nullptr;
  ClockReadings before, after;
  bool exact_lengths = true;  // the server was told to answer with exactly the wanted length
  bool cancelled = false;
  std::vector<std::string> error_samples;
  nlohmann::json agents;  // LoadSource::Recording's
};

std::vector<store::ValidityCheck> CheckValidity(const RunEvidence& evidence);

}  // namespace tare::load
