// Runs steps. CpuExecutor computes, the simulator's RooflineExecutor only says how long it takes.
#pragma once

#include "base/result.h"
#include "engine/step.h"

namespace tare::engine {

// Thread safety: one Run at a time.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual Result<StepResult> Run(const StepPlan& plan) = 0;
};

}  // namespace tare::engine
