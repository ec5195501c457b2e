#include "sim/efficiency.h"

namespace tare::sim {

ServingEfficiency FittedEfficiency() {
  ServingEfficiency fitted;
  // `tare sim published ../shared/data/perf --fit`, 2026-11-30; does not depend on the CPU.
  fitted.step = {.bandwidth = 0.812,
                 .compute = 0.700,
                 .seconds_per_layer = 57.5e-6,
                 .seconds_per_collective = 1.9e-6,
                 .prefill_interference = 0,
                 .first_token_wait = 0,
                 .first_token_seconds = 0};
  fitted.step_overheads = {.seconds_per_sparse_layer = 50e-6, .seconds_per_sequence = 6.2e-6};
  fitted.overheads.request_seconds = 0.150;
  return fitted;
}

KnownError FittedEfficiencyError() {
  // Where fitted the mean errors are 15 % and 43 % (docs/SIMULATION.md); a device or server that
  // was not fitted is predicted less well, by how much is a judgement.
  return {.rate = 0.25,
          .first_token = 0.6,
          .source =
              "published servers: 15 % a token and 43 % to the first token where fitted; "
              "25 % and 60 % taken for others"};
}

}  // namespace tare::sim
