// Rounding a whole model: the pieces `tare quantize` is made of, in one place.
#pragma once

#include <functional>

#include "eval/awq.h"
#include "eval/input_statistics.h"
#include "eval/quantized_checkpoint.h"
#include "eval/quantized_files.h"

namespace tare::eval {

// Whole inputs kept for each matrix to measure errors on, and tokens read at a time.
inline constexpr std::int64_t kSampledInputs = 384;
inline constexpr std::int64_t kSampledInputsOfExpert = 48;
inline constexpr int kCalibrationWindow = 512;

// All layers' matrices; `inputs` null: plain rounding. Progress in [0, 1] after every layer.
Result<QuantizedTensors> QuantizeModel(const model::Checkpoint& checkpoint,
                                       const RoundingRule& rule, const InputCollector* inputs,
                                       ThreadPool& pool,
                                       const std::function<void(double fraction)>& progress);

}  // namespace tare::eval
