// The executor of simulations: runs no step, only says how long it takes.
//
// Ownership: the step time is shared; it may serve any number of executors. Thread safety: see
// engine::Executor.
#pragma once

#include <memory>

#include "engine/executor.h"
#include "sim/step_time.h"

namespace tare::sim {

class RooflineExecutor final : public engine::Executor {
 public:
  explicit RooflineExecutor(std::shared_ptr<const StepTime> time) : time_(std::move(time)) {}

  Result<engine::StepResult> Run(const engine::StepPlan& plan) override {
    engine::StepResult result;
    result.elapsed = TimeOf(LoadOf(plan));
    return result;
  }
  // At least a nanosecond, so that virtual time moves with every step.
  Nanos TimeOf(const StepLoad& load) const {
    return std::max(FromSeconds(time_->Seconds(load)), Nanos{1});
  }

 private:
  std::shared_ptr<const StepTime> time_;
};

}  // namespace tare::sim
