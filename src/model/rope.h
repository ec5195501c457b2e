// Rotary position embedding: the frequencies of each scaling scheme.
//
// Grouped-query attention rotates in one order only: element i of a head pairs with element
// i + dims/2 (what Hugging Face files use). Weights stored for neighbouring pairs (2i, 2i+1) have
// their rows put into this order when they are loaded (WeightLoader); scores are the same, since q
// and k are permuted alike. Latent attention rotates neighbours, which is how all its files are.
// Sources: RoFormer (arXiv 2104.09864); linear scaling (arXiv 2306.15595); the llama3 scheme as
// published with Llama 3.1; YaRN (arXiv 2309.00071) with DeepSeek's mscale.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"

namespace tare::model {

struct RopeTable {
  std::vector<float> frequencies;  // [dims / 2], radians per position
  float magnitude = 1.0f;          // multiplies cosine and sine
  float score_scale = 1.0f;        // multiplies the attention scale (DeepSeek's mscale squared)

  int half() const { return static_cast<int>(frequencies.size()); }
};

// `divisors` is the file's own table of [dims / 2] factors that divide the frequencies, or empty.
// dims must be even and positive.
Result<RopeTable> MakeRopeTable(const RopeConfig& config, int dims,
                                std::span<const float> divisors);

}  // namespace tare::model
