// What a step has to do, summed over its sequences: all that its time depends on.
//
// Plain values. Counts are doubles because they only ever enter sums and products of times.
#pragma once

#include "engine/step.h"

namespace tare::sim {

struct StepLoad {
  double rows = 0;             // tokens computed
  double logit_rows = 0;       // of them followed by sampling
  double decode_context = 0;   // tokens whose keys and values slices of one token read, itself too
  double prefill_context = 0;  // the same of longer slices, each read once a slice
  double prefill_pairs = 0;    // pairs of a query and a key it sees, in longer slices
};

StepLoad LoadOf(const engine::StepPlan& plan);

// A step in which `sequences` sequences decode that have `context` tokens together, those computed
// in the step included.
inline StepLoad DecodeLoad(double sequences, double context) {
  return {sequences, sequences, context, 0, 0};
}

}  // namespace tare::sim
