// Rounds the linear layers of a decoder, plainly or aware of activations.
//
// AWQ (Lin et al., MLSys 2024): inputs that are large on average are multiplied into the weights
// before rounding and out of what computes them, so that rounding spares the weights that matter.
// Scales are mean|x|^alpha; alpha is searched for each place by the squared error of the layers'
// outputs on a sample of real inputs. Scales go into
//   attn_norm -> q, k, v     ffn_norm -> gate, up     rows of v -> output     rows of up -> down
// and leave the function of the model as it was. Where several query heads share a value head,
// their inputs to the output matrix share scales. Ranges are then narrowed by mean squared
// activations (coded_matrix.h). alpha = 0 is plain rounding, so no place gets worse on the sample.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "eval/coded_matrix.h"
#include "eval/input_statistics.h"
#include "model/checkpoint.h"

namespace tare::eval {

// What replaces tensors of a checkpoint, by common name.
struct QuantizedTensors {
  std::map<std::string, CodedMatrix, std::less<>> matrices;
  std::map<std::string, std::vector<float>, std::less<>> vectors;  // norms and biases
};

// Refuses, by name, models whose layers are not of these parts (experts, latent attention), and
// shapes that the rule cannot round.
Status CheckQuantizable(const model::Checkpoint& checkpoint, const RoundingRule& rule);

// The matrices of one layer into `out`; `inputs` null: plain rounding.
Status QuantizeLayer(const model::Checkpoint& checkpoint, int layer, const RoundingRule& rule,
                     const InputCollector* inputs, ThreadPool& pool, QuantizedTensors& out);

}  // namespace tare::eval
