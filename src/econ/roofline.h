// The roofline of a deployment (Williams, Waterman and Patterson, CACM 2009) for prefill and
// decode: what a step must at least move and compute, the ceilings that follow, and a calibrated
// prediction of what servers reach.
//
// A decode step over `batch` sequences of `context` tokens reads the weights it touches once and
// every sequence's cached keys and values; it computes 2 FLOP a weight and token plus attention.
// Tensor parallelism splits bytes and FLOP evenly and adds two all-reduces of batch x hidden
// values a layer (Shoeybi et al. 2019); expert parallelism adds an all-to-all of each token to its
// experts and back. Times are seconds, sizes bytes. Pure functions.
#pragma once

#include "econ/device_facts.h"
#include "econ/model_facts.h"

namespace tare::econ {

// A model on `devices` equal devices that together serve every sequence (one replica).
struct Deployment {
  ModelFacts model;
  DeviceFacts device;
  int devices = 1;
  Precision weights;
  Precision cache;
  int attention_replicas = 1;  // ranks that each hold all attention weights and a share of batch
};

// How much of the peaks a server reaches, and what a step costs besides.
struct Efficiency {
  double bandwidth = 0.8;
  double compute = 0.5;
  double seconds_per_layer = 0;       // launches and synchronisation, each step
  double seconds_per_collective = 0;  // latency of an all-reduce or all-to-all
  // Prompts run expert layers without the captured graphs that decoding replays: sorting tokens by
  // expert and starting many small products, each layer.
  double prefill_seconds_per_expert_layer = 0;
  // 1: a device does one thing at a time, so while a sequence is served each of the others' next
  // prompts is processed once and costs it that time; 0: other prompts are free.
  double prefill_interference = 0;
  // How much of that time is met before the first token, at a server that only prefills; the rest
  // holds up decoding.
  double first_token_wait = 0;
  double first_token_seconds = 0;  // besides the device: receive, tokenise, schedule, send
};

// The plain roofline people use: fixed shares of the peaks and nothing else.
inline constexpr Efficiency kPlainRoofline{0.8, 0.5, 0, 0, 0, 0, 0, 0};
// Peaks reached in full: nothing can be faster.
inline constexpr Efficiency kPhysicalLimit{1, 1, 0, 0, 0, 0, 0, 0};

struct StepWork {
  double weight_bytes = 0;
  double kv_bytes = 0;
  double flop = 0;
  double link_bytes_per_device = 0;
  int collectives = 0;
  int prompt_expert_layers = 0;  // of a prefill
  double bytes() const { return weight_bytes + kv_bytes; }
};
StepWork DecodeWork(const Deployment& deployment, double batch, double context_tokens);
// `prompts` of the same length together.
StepWork PrefillWork(const Deployment& deployment, double prompt_tokens, double prompts = 1);

struct StepTime {
  double memory_seconds = 0;
  double compute_seconds = 0;
  double link_seconds = 0;
  double overhead_seconds = 0;
  double total() const {
    return (memory_seconds > compute_seconds ? memory_seconds : compute_seconds) + link_seconds +
           overhead_seconds;
  }
  bool memory_bound() const { return memory_seconds >= compute_seconds; }
};
StepTime TimeOf(const StepWork& work, const Deployment& deployment, const Efficiency& efficiency);

// A closed load: `concurrency` sequences in flight, each with `prompt_tokens` in and
// `output_tokens` out.
struct ServingLoad {
  double concurrency = 1;
  double prompt_tokens = 1024;
  double output_tokens = 128;
  bool prefill_elsewhere = false;  // disaggregated: other devices prefill
};
struct ServingPrediction {
  double seconds_per_output_token = 0;
  double seconds_to_first_token = 0;
  double output_tokens_per_second = 0;
  double requests_per_second = 0;
  StepTime decode;
  StepTime prefill;
};
ServingPrediction Predict(const Deployment& deployment, const ServingLoad& load,
                          const Efficiency& efficiency);

// Nothing decodes faster: tokens a second of `batch` sequences at the peaks.
double DecodeCeilingTokensPerSecond(const Deployment& deployment, double batch,
                                    double context_tokens);
double PrefillCeilingTokensPerSecond(const Deployment& deployment, double prompt_tokens);

// Where bandwidth saturates (EC3): the largest batch at which a step's memory share of the peak is
// above `bandwidth_share` while compute is below `compute_share`, and the requests a second there.
struct Saturation {
  double batch = 0;  // 0: compute binds from the first sequence on
  double requests_per_second = 0;
  double bandwidth_used = 0;  // of the peak
  double compute_used = 0;
};
Saturation BandwidthSaturation(const Deployment& deployment, double context_tokens,
                               double output_tokens, double compute_share, double max_batch);
// The batch at which compute takes over from bandwidth; nothing up to `max_batch` gives max_batch.
double ComputeBoundBatch(const Deployment& deployment, double context_tokens, double max_batch);

}  // namespace tare::econ
