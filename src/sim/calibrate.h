// Times steps of a running engine over a small grid (prompts of many lengths, decoding at many
// batch sizes and contexts, prompts beside answers that go on) and fits MeasuredStepTime's
// coefficients: what `tare bench --calibrate` does.
//
// Steps are timed from outside, between the tokens the engine delivers, so sampling and delivery
// belong to them as they do in serving.
//
// Thread safety: the engine must be idle and is used by nobody else meanwhile.
#pragma once

#include <functional>

#include "engine/engine.h"
#include "sim/measured_step_time.h"

namespace tare::sim {

struct CalibrationPlan {
  int max_num_seqs = 32;
  int max_num_batched_tokens = 512;
  int prefill_chunk = 128;
  int max_model_len = 2048;
  int repeats = 5;        // of each prompt length; the median counts
  int decode_steps = 24;  // timed at each batch size; the median counts
  // Nothing new is begun after this long: slow models get a coarser grid, in the order of use.
  Nanos budget = std::chrono::seconds(50);
};

struct CalibrationProgress {
  std::string what;
  int done = 0, all = 0;
};

// Fills points, fit and errors; who and what was measured is the caller's to add.
Result<Calibration> Calibrate(engine::Engine& engine, const CalibrationPlan& plan,
                              const std::function<void(const CalibrationProgress&)>& progress);

}  // namespace tare::sim
