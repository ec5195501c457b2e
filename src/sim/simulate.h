// A simulation as a run record: the load tester's schema, figures and series, tagged "simulated".
#pragma once

#include <string>

#include "base/result.h"
#include "sim/plan.h"
#include "store/run_record.h"

namespace tare::sim {

// Where a simulated record's target keeps how far off its step times are known to be: the worst of
// its groups, {"rate", "first_token", "source"}.
inline constexpr const char* kPredictionErrorKey = "prediction_error";

struct Simulation {
  store::RunRecord record;
  Outcome outcome;
  double took_s = 0;
};

// The record's `series` holds the load tester's columns and the replicas over time; `target` the
// groups, what each did, and the error their step times are known to have.
Result<Simulation> Simulate(const SimPlan& plan, const SimProgressCallback& progress);

// One line a group: requests, tokens, busy, memory, cache, cost. For the terminal.
std::string GroupTable(const SimPlan& plan, const Outcome& outcome);

}  // namespace tare::sim
