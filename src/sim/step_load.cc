#include "sim/step_load.h"

namespace tare::sim {

StepLoad LoadOf(const engine::StepPlan& plan) {
  StepLoad load;
  for (const engine::PlannedSlice& slice : plan.slices) {
    const double tokens = slice.num_tokens;
    const double start = slice.start;
    load.rows += tokens;
    load.logit_rows += slice.logit_rows();
    if (slice.num_tokens == 1) {
      load.decode_context += start + 1;
    } else {
      load.prefill_context += start + tokens;
      load.prefill_pairs += tokens * start + tokens * (tokens + 1) / 2;
    }
  }
  return load;
}

}  // namespace tare::sim
