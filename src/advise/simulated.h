// A candidate nobody has to start: one level of load on replicas of a catalogue's devices, or of an
// engine calibrated before, as a run record tagged "simulated".
#pragma once

#include <functional>

#include "advise/plan.h"
#include "base/result.h"
#include "store/run_record.h"

namespace tare::advise {

// The candidate's replicas behind a least-loaded router, under the same arrivals, lengths and seed
// a measurement of this level would use. Pure but for the files the candidate names. `cancelled`
// may be empty.
Result<store::RunRecord> SimulateLevel(const Candidate& candidate, const LoadPlan& load,
                                       double level, int round,
                                       const std::function<bool()>& cancelled);

}  // namespace tare::advise
