// A checkpoint with some of its tensors rounded: to measure before anything is written.
#pragma once

#include <memory>

#include "eval/awq.h"
#include "model/checkpoint.h"

namespace tare::eval {

// `base` must outlive it, and so must `tensors`.
std::unique_ptr<model::Checkpoint> MakeQuantizedCheckpoint(const model::Checkpoint& base,
                                                           const QuantizedTensors& tensors);

}  // namespace tare::eval
