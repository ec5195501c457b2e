#include "sim/efficiency.h"

namespace tare::sim {

ServingEfficiency FittedEfficiency() {
  ServingEfficiency fitted;
  fitted.step = {.bandwidth = 0.75,
                 .compute = 0.55,
                 .seconds_per_layer = 60e-6,
                 .seconds_per_collective = 2e-6,
                 .prefill_interference = 0,
                 .first_token_wait = 0,
                 .first_token_seconds = 0};
  fitted.step_overheads = {50e-6, 0};
  fitted.overheads.request_seconds = 0.02;
  return fitted;
}

KnownError FittedEfficiencyError() {
  return {.rate = 0.25,
          .first_token = 0.6,
          .source = "published servers, each device left out of the fit (docs/SIMULATION.md)"};
}

}  // namespace tare::sim
