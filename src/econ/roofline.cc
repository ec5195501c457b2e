#include "econ/roofline.h"

#include <algorithm>
#include <cmath>

namespace tare::econ {
namespace {

constexpr double kActivationBytes = 2;
// Servers bound the prompt tokens of a step; 8192 is the default of vLLM and SGLang on data-centre
// devices.
constexpr double kPrefillChunkTokens = 8192;

// An all-reduce of `bytes` on each of n devices sends 2 (n-1)/n of them over each link (ring).
double AllReduceBytes(double bytes, int devices) { return 2.0 * (devices - 1) / devices * bytes; }

// Two all-reduces of the residual a layer for tensor parallelism. With attention replicated, each
// token instead travels to its experts' devices and back.
void AddLinkTraffic(const Deployment& d, double tokens, StepWork& work) {
  if (d.devices <= 1) return;
  const double row_bytes = tokens * d.model.hidden * kActivationBytes;
  if (d.attention_replicas > 1 && d.model.sparse()) {
    const double elsewhere = static_cast<double>(d.devices - 1) / d.devices;
    const double targets = std::min(d.model.experts_per_token, d.devices);
    work.link_bytes_per_device =
        2 * row_bytes / d.devices * targets * elsewhere * d.model.sparse_layers();
    work.collectives = 2 * d.model.sparse_layers();
    return;
  }
  work.link_bytes_per_device = 2.0 * d.model.layers * AllReduceBytes(row_bytes, d.devices);
  work.collectives = 2 * d.model.layers;
}

// Weights that every attention rank reads again.
double RepeatedWeightBytes(const Deployment& d) {
  if (d.attention_replicas <= 1) return 0;
  const double attention = CountParameters(d.model).attention;
  return attention * d.weights.bits_total() / 8 * (d.attention_replicas - 1);
}

}  // namespace

StepWork DecodeWork(const Deployment& d, double batch, double context_tokens) {
  StepWork work;
  work.weight_bytes = WeightBytesRead(d.model, d.weights, batch) + RepeatedWeightBytes(d);
  work.kv_bytes = batch * context_tokens * KvBytesPerToken(d.model, d.cache);
  work.flop = batch * (MatmulFlopPerToken(d.model) +
                       context_tokens * AttentionFlopPerContextToken(d.model));
  AddLinkTraffic(d, batch, work);
  return work;
}

StepWork PrefillWork(const Deployment& d, double prompt_tokens, double prompts) {
  StepWork work;
  const double tokens = prompt_tokens * prompts;
  // Prompts that wait together share a step, and one read of the weights, up to a chunk.
  const double chunks = std::ceil(tokens / kPrefillChunkTokens);
  work.weight_bytes =
      chunks * (WeightBytesRead(d.model, d.weights, tokens / chunks) + RepeatedWeightBytes(d));
  work.kv_bytes = tokens * KvBytesPerToken(d.model, d.cache);
  // The head is needed for the last token only; causal attention sees half the prompt on average.
  // MLA computes prompts expanded: head_dim + rope for scores, value_dim for sums.
  const ParameterCounts counts = CountParameters(d.model);
  const double head = d.model.tied_embeddings ? counts.input_embedding : counts.output_head;
  const double expanded_width = d.model.mla()
                                    ? d.model.head_dim + d.model.rope_dim + d.model.value_dim
                                    : 2.0 * d.model.head_dim;
  const double attention_flop = 2.0 * expanded_width * d.model.heads * d.model.layers;
  work.flop = prompts * (prompt_tokens * (MatmulFlopPerToken(d.model) - 2 * head) + 2 * head +
                         prompt_tokens * prompt_tokens / 2 * attention_flop);
  work.prompt_expert_layers = d.model.sparse_layers();
  AddLinkTraffic(d, tokens, work);
  return work;
}

StepTime TimeOf(const StepWork& work, const Deployment& d, const Efficiency& efficiency) {
  StepTime time;
  time.memory_seconds =
      work.bytes() / (d.device.bandwidth_bytes_per_second * d.devices * efficiency.bandwidth);
  time.compute_seconds =
      work.flop / (PeakFlopPerSecond(d.device, d.weights.name) * d.devices * efficiency.compute);
  const double link = d.device.link_bytes_per_second > 0 ? d.device.link_bytes_per_second
                                                         : d.device.pcie_bytes_per_second;
  if (work.link_bytes_per_device > 0 && link > 0) {
    time.link_seconds = work.link_bytes_per_device / link;
  }
  time.overhead_seconds = efficiency.seconds_per_layer * d.model.layers +
                          efficiency.seconds_per_collective * work.collectives +
                          efficiency.prefill_seconds_per_expert_layer * work.prompt_expert_layers;
  return time;
}

ServingPrediction Predict(const Deployment& d, const ServingLoad& load,
                          const Efficiency& efficiency) {
  ServingPrediction prediction;
  // A sequence is on average half way through its output.
  const double context = load.prompt_tokens + load.output_tokens / 2;
  prediction.decode = TimeOf(DecodeWork(d, load.concurrency, context), d, efficiency);
  prediction.prefill = TimeOf(PrefillWork(d, load.prompt_tokens, 1), d, efficiency);
  // While a sequence is served each of the others is replaced once, and its prompt takes the
  // device. Prompts meet in the queue as often as the server is busy with prompts; what a sequence
  // does not wait for there it waits for while it decodes.
  const double others =
      efficiency.prefill_interference * (load.prefill_elsewhere ? 0 : load.concurrency - 1);
  const double busy = std::min(
      1.0, others * prediction.prefill.total() / (load.output_tokens * prediction.decode.total()));
  const double before_first_token = efficiency.first_token_wait * busy;
  prediction.seconds_per_output_token = prediction.decode.total();
  if (others > 0) {
    const StepTime prompts = TimeOf(PrefillWork(d, load.prompt_tokens, others), d, efficiency);
    prediction.seconds_per_output_token +=
        (1 - before_first_token) * prompts.total() / load.output_tokens;
  }
  prediction.seconds_to_first_token =
      efficiency.first_token_seconds +
      TimeOf(PrefillWork(d, load.prompt_tokens, 1 + before_first_token * others), d, efficiency)
          .total() +
      prediction.decode.total();
  const double seconds_per_request = prediction.seconds_to_first_token +
                                     (load.output_tokens - 1) * prediction.seconds_per_output_token;
  prediction.requests_per_second = load.concurrency / seconds_per_request;
  prediction.output_tokens_per_second = prediction.requests_per_second * load.output_tokens;
  return prediction;
}

double DecodeCeilingTokensPerSecond(const Deployment& d, double batch, double context_tokens) {
  const StepTime time = TimeOf(DecodeWork(d, batch, context_tokens), d, kPhysicalLimit);
  return batch / std::max(time.memory_seconds, time.compute_seconds);
}

double PrefillCeilingTokensPerSecond(const Deployment& d, double prompt_tokens) {
  const StepTime time = TimeOf(PrefillWork(d, prompt_tokens, 1), d, kPhysicalLimit);
  return prompt_tokens / std::max(time.memory_seconds, time.compute_seconds);
}

Saturation BandwidthSaturation(const Deployment& d, double context_tokens, double output_tokens,
                               double compute_share, double max_batch) {
  Saturation saturation;
  for (double batch = 1; batch <= max_batch; ++batch) {
    const StepTime time = TimeOf(DecodeWork(d, batch, context_tokens), d, kPhysicalLimit);
    if (!time.memory_bound()) break;
    const double compute_used = time.compute_seconds / time.memory_seconds;
    if (compute_used >= compute_share) break;
    saturation = {batch, batch / time.memory_seconds / output_tokens, 1.0, compute_used};
  }
  return saturation;
}

double ComputeBoundBatch(const Deployment& d, double context_tokens, double max_batch) {
  for (double batch = 1; batch < max_batch; batch = std::ceil(batch * 1.02)) {
    if (!TimeOf(DecodeWork(d, batch, context_tokens), d, kPhysicalLimit).memory_bound()) {
      return batch;
    }
  }
  return max_batch;
}

}  // namespace tare::econ
