// The serving engine: many requests at a time on one model, in steps shared by all of them.
//
// One thread of the engine's own (the step thread) loops: take new requests and cancellations from
// the inbox, ask the Scheduler for a StepPlan, run it, sample, hand text to the sinks. Everybody
// else only puts messages in the inbox, so nobody waits for a step. docs/ENGINE.md has the design.
//
// Ownership: the engine owns the model, its KV pages and the step thread; sinks are shared until
// their terminal call has returned. Destroying the engine cancels what still runs and joins.
// Thread safety: all methods may be called from any thread, except the destructor.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "engine/generate.h"
#include "engine/speculation.h"
#include "engine/stats.h"
#include "model/language_model.h"

namespace tare::model {
class Text;
}

namespace tare::engine {

struct EngineOptions {
  int max_num_seqs = 32;             // sequences that share a step
  int max_num_batched_tokens = 512;  // rows of a step; at least max_num_seqs
  int prefill_chunk = 128;  // prompt tokens of a step in which answers go on too; 0: no limit
  int max_model_len = 0;    // tokens; 0: the model's context length
  kernels::KvType kv_type = kernels::KvType::kBf16;
  std::size_t kv_memory_bytes = 0;  // 0: enough for max_num_seqs sequences of 2048 tokens
  bool prefix_cache = true;
  SpeculationOptions speculation{.most = kMostDrafts};
  ContextPolicy context_policy = ContextPolicy::kStop;
  // A batch starts on an idle engine when this many requests wait or the oldest has waited so long.
  int batch_window_requests = 32;
  Nanos batch_window = std::chrono::milliseconds(5);
  // A batch-tier request that has waited this long is as urgent as a new interactive one.
  Nanos batch_tier_ageing = std::chrono::seconds(10);
  int max_queued = 4096;         // requests waiting; more are refused as kUnavailable
  const Clock* clock = nullptr;  // null: CLOCK_MONOTONIC
  std::uint64_t seed = 0;        // draws the seeds of requests without one; 0: from the system
  StartupTimes startup;          // stages done before the engine was started
  // The pool the model computes with: kept alive, and used to sample. May be null.
  std::shared_ptr<ThreadPool> pool;
};

// Names a submitted request. Plain value; outliving the request is harmless.
struct RequestHandle {
  std::uint64_t id = 0;
};

class Engine {
 public:
  // Reserves KV memory, warms the kernels up and starts the step thread. `text` may be null: then
  // chunks carry tokens without text, and requests with stop strings are refused.
  static Result<std::unique_ptr<Engine>> Start(EngineOptions options,
                                               std::unique_ptr<model::LanguageModel> model,
                                               std::shared_ptr<const model::Text> text);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Checks the request and queues it. Errors name the parameter at fault; after Drain began, or
  // with a full queue, kUnavailable.
  Result<RequestHandle> Submit(GenerateRequest request, std::shared_ptr<GenerateSink> sink);

  // Takes effect before the next step; the sink still gets its terminal call.
  void Cancel(RequestHandle handle);

  // Refuses new requests and waits until all accepted ones have ended; those still running at
  // `deadline` (engine clock) are cancelled. True when none had to be.
  bool Drain(Nanos deadline);

  EngineStats Stats() const;

  const model::ModelConfig& config() const;
  const std::shared_ptr<const model::Text>& text() const;
  int max_model_len() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tare::engine
