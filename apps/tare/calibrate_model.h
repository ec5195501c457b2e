// Loading a model and timing its steps, for `tare bench --calibrate` and `tare sim validate`.
#pragma once

#include "base/result.h"
#include "engine/local_model.h"
#include "sim/measured_step_time.h"

namespace tare::app {

// Shows progress on a terminal. The model is gone when it returns.
Result<sim::Calibration> CalibrateLocalModel(engine::LocalModelOptions options);

}  // namespace tare::app
