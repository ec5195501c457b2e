// How much of their peaks devices reach when they serve, and what a request costs besides: fitted
// to published measurements by simulating them (fit.h; docs/SIMULATION.md has data and errors).
#pragma once

#include "econ/device_facts.h"
#include "econ/roofline.h"
#include "sim/cluster.h"

namespace tare::sim {

struct ServingEfficiency {
  econ::Efficiency step;  // bandwidth, compute, seconds a layer and a collective
  StepOverheads step_overheads;
  Overheads overheads;
};

// The factors fitted to all measured servers.
ServingEfficiency FittedEfficiency();
// The error to expect of it on a device or server that was not fitted.
KnownError FittedEfficiencyError();

}  // namespace tare::sim
