// Memory of a deployment: what weights, cache and working memory take, and the largest batch x
// length that fits (SPEC row EC3). Bytes throughout; counts of tokens are over all sequences.
#pragma once

#include "econ/device_facts.h"
#include "econ/model_facts.h"

namespace tare::econ {

struct MemoryUse {
  double weight_bytes = 0;
  double kv_bytes = 0;
  double activation_bytes = 0;
  double total() const { return weight_bytes + kv_bytes + activation_bytes; }
};

struct Batch {
  double sequences = 1;
  double tokens_each = 0;        // context: prompt and generated
  double prefill_tokens = 2048;  // largest number of tokens in one step
};

MemoryUse UsedMemory(const ModelFacts& model, const Precision& weights, const Precision& cache,
                     const Batch& batch);

struct MemoryFit {
  double usable_bytes = 0;  // share of all devices' memory
  double free_for_kv_bytes = 0;
  double kv_bytes_per_token = 0;
  double max_tokens = 0;  // batch x length that fits; 0 when the weights alone do not
  bool weights_fit = false;
  // The published rule of thumb, memory / (2 * hidden * 2), takes the whole memory for one layer's
  // keys and values; rule_ratio = rule / max_tokens shows how far off it is.
  double rule_of_thumb_tokens = 0;
  double rule_ratio = 0;
};

// `memory_share` is the part of the memory a server may use (vLLM's default is 0.9).
MemoryFit FitMemory(const ModelFacts& model, const Precision& weights, const Precision& cache,
                    const DeviceFacts& device, int devices, double memory_share,
                    double prefill_tokens, double sequences);

// Bits a weight may have at most for the weights alone to fit; what any claim of fitting needs.
double WidestBitsThatFit(double parameters, double memory_bytes);

}  // namespace tare::econ
