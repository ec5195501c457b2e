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
  // `tare sim published`, 2026-11-30: each device predicted by a fit to the others, 27 points with
  // times per token, 12 with first tokens. The means, 44 % and 72 %, are made by three points of
  // two devices (docs/SIMULATION.md); without these they are 19 % and 39 %. What is taken lies
  // between.
  return {
      .rate = 0.25,
      .first_token = 0.6,
      .source =
          "27 published measurements, each device predicted by a fit to the others: half are "
          "within 13 % a token and 39 % to the first token, on average they are off by 44 % and "
          "72 %, at worst 6.0 and 5.3 times what was measured; 25 % and 60 % are taken"};
}

}  // namespace tare::sim
