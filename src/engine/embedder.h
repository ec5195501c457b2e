// Makes vectors of texts for many callers at a time: inputs of all requests share steps.
//
// One thread of its own (the step thread) loops: it takes one input of each waiting request in
// turn, interactive ones first, until the step is full, computes them, and hands a request its
// vectors when the last of them is there. So a request of thousands of inputs does not hold up one
// of a single input for longer than a step. A vector has the same bits whatever shares its step.
//
// Ownership: the embedder owns the model and the thread; destroying it drops what waits, without a
// word to its callers, and joins. Thread safety: all methods may be called from any thread, except
// the destructor; Done is called from the step thread and must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "engine/generate.h"
#include "engine/stats.h"
#include "model/encoder.h"
#include "model/text.h"

namespace tare::engine {

struct EmbedderOptions {
  int max_step_tokens = 512;  // rows of a step; a longer input has a step of its own
  int max_length = 0;         // tokens of an input; 0: as the model's folder says
  int max_queued = 4096;      // requests waiting; more are refused as kUnavailable
  // A batch-tier request that has waited this long is as urgent as a new interactive one.
  Nanos batch_tier_ageing = std::chrono::seconds(10);
  const Clock* clock = nullptr;           // null: CLOCK_MONOTONIC
  StartupTimes startup = {};              // stages done before
  std::shared_ptr<ThreadPool> pool = {};  // the pool the model computes with: kept alive
};

struct EmbedderStats {
  // Now.
  int waiting_requests = 0;  // not answered yet
  std::uint64_t waiting_inputs = 0;
  bool draining = false;
  // Since the start.
  std::uint64_t requests_accepted = 0;
  std::uint64_t requests_finished = 0;
  std::uint64_t requests_cancelled = 0;
  std::uint64_t inputs = 0;  // computed
  std::uint64_t tokens = 0;  // computed
  std::uint64_t steps = 0;
  double step_seconds = 0.0;
  StartupTimes startup;
};

struct EmbedRequest {
  std::vector<std::vector<TokenId>> inputs = {};  // control tokens included
  Tier tier = Tier::kInteractive;
};

class Embedder {
 public:
  // Gets the request's vectors, [inputs, dimension()], in the order of its inputs; or why there are
  // none: the embedder was drained before.
  using Done = std::function<void(Result<std::vector<float>> vectors)>;
  struct Handle {
    std::uint64_t id = 0;
  };

  // Warms the model up and starts the step thread.
  static Result<std::unique_ptr<Embedder>> Start(EmbedderOptions options,
                                                 std::unique_ptr<model::Encoder> encoder,
                                                 std::shared_ptr<const model::Text> text);
  ~Embedder();
  Embedder(const Embedder&) = delete;
  Embedder& operator=(const Embedder&) = delete;

  // Checks and queues. The error's param is "input"; after Drain began, or with a full queue,
  // kUnavailable.
  Result<Handle> Submit(EmbedRequest request, Done done);
  // `done` is not called any more, unless it is being called already.
  void Cancel(Handle handle);
  // Refuses new requests and waits until all accepted ones have ended; those not begun at
  // `deadline` (the embedder's clock) end with kUnavailable. True when none had to.
  bool Drain(Nanos deadline);

  // A text as the model takes it. Names of control tokens in it are ordinary text.
  Result<std::vector<TokenId>> Encode(std::string_view text) const;
  // The first tokens, and the control token at the end if there is one ([SEP]): what truncating
  // means for encoders. Shorter ones are left alone.
  void Truncate(std::vector<TokenId>& tokens, int most) const;
  // The vectors of texts, [texts, dimension()]; waits for them. Texts that are too long are an
  // error.
  Result<std::vector<float>> Embed(std::span<const std::string> texts);

  EmbedderStats Stats() const;
  const model::Encoder& encoder() const;
  const std::shared_ptr<const model::Text>& text() const;
  int dimension() const { return encoder().dimension(); }
  int max_length() const;  // tokens

 private:
  class Impl;
  explicit Embedder(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tare::engine
