// Rounds the linear layers of a decoder, plainly or aware of activations.
//
// AWQ (Lin et al., MLSys 2024): inputs that are large on average are multiplied into the weights
// before rounding and out of what computes them, so that rounding spares the weights that matter.
// Scales are mean|x|^alpha; alpha is searched for each place by the squared error of the layers'
// outputs on a sample of real inputs. Scales go into
//   attn_norm -> q, k, v (latent: q or q_a, kv_a)    rows of v -> output    q_a_norm -> q_b
//   ffn_norm -> gate, up of the layer, or of all its experts, shared ones and router
//   rows of up -> down, of the layer or of each expert
// and leave the function of the model as it was. Where several query heads share a value head,
// their inputs to the output matrix share scales. Ranges are then narrowed by mean squared
// activations (coded_matrix.h). alpha = 0 is plain rounding, so no place gets worse on the sample.
//
// The experts of a layer share the scales of gate and up, since one norm computes their inputs, and
// the error that is searched by is that of each on the tokens that reached it. An expert that too
// few reached has no say in it and is rounded plainly; such are counted. Routers and kv_b of latent
// attention are not rounded.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "eval/coded_matrix.h"
#include "eval/input_statistics.h"
#include "model/checkpoint.h"

namespace tare::eval {

// Tokens an expert must have seen for its inputs to say how it is best rounded: below, the mean
// squares that narrow ranges scatter by more than a third of themselves.
inline constexpr std::int64_t kLeastExpertInputs = 16;

// What replaces tensors of a checkpoint, by common name.
struct QuantizedTensors {
  std::map<std::string, CodedMatrix, std::less<>> matrices;
  // What took scales in and is not rounded: norms, biases, routers. In F32, of the shape they had.
  std::map<std::string, std::vector<float>, std::less<>> scaled;
  int experts = 0;             // rounded, over all layers
  int experts_unsearched = 0;  // of them: too few tokens reached them, rounded plainly
};

// Common names of the matrices of a layer that are rounded, as the checkpoint has them: experts
// stacked or apart.
std::vector<std::string> RoundedMatrices(const model::Checkpoint& checkpoint, int layer);

// Refuses, by name, matrices that are missing and shapes that the rule cannot round.
Status CheckQuantizable(const model::Checkpoint& checkpoint, const RoundingRule& rule);

// The matrices of one layer into `out`; `inputs` null: plain rounding.
Status QuantizeLayer(const model::Checkpoint& checkpoint, int layer, const RoundingRule& rule,
                     const InputCollector* inputs, ThreadPool& pool, QuantizedTensors& out);

}  // namespace tare::eval
