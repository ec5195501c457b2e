#include "econ/memory.h"

#include <algorithm>

namespace tare::econ {

MemoryUse UsedMemory(const ModelFacts& model, const Precision& weights, const Precision& cache,
                     const Batch& batch) {
  return {WeightBytes(model, weights),
          batch.sequences * batch.tokens_each * KvBytesPerToken(model, cache),
          ActivationBytes(model, batch.prefill_tokens, batch.sequences)};
}

MemoryFit FitMemory(const ModelFacts& model, const Precision& weights, const Precision& cache,
                    const DeviceFacts& device, int devices, double memory_share,
                    double prefill_tokens, double sequences) {
  MemoryFit fit;
  fit.usable_bytes = device.memory_bytes * devices * memory_share;
  fit.kv_bytes_per_token = KvBytesPerToken(model, cache);
  const double weight_bytes = WeightBytes(model, weights);
  fit.weights_fit = weight_bytes <= fit.usable_bytes;
  fit.free_for_kv_bytes = std::max(
      0.0, fit.usable_bytes - weight_bytes - ActivationBytes(model, prefill_tokens, sequences));
  fit.max_tokens = fit.free_for_kv_bytes / fit.kv_bytes_per_token;
  fit.rule_of_thumb_tokens = device.memory_bytes * devices / (2.0 * model.hidden * 2);
  fit.rule_ratio = fit.max_tokens > 0 ? fit.rule_of_thumb_tokens / fit.max_tokens : 0;
  return fit;
}

double WidestBitsThatFit(double parameters, double memory_bytes) {
  return memory_bytes * 8 / parameters;
}

}  // namespace tare::econ
