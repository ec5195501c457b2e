// Run records of the load tester as points of a load curve (schema tare.run/1, docs/LOAD.md).
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "econ/capacity.h"

namespace tare::econ {

// Latencies count from the intended send time, so that waiting in the client shows. An invalid run
// and a missing rate are errors; a percentile without enough samples is taken as missing its level
// (infinite), so that it can never raise a capacity.
Result<LoadPoint> LoadPointFromRun(const nlohmann::json& run);

}  // namespace tare::econ
