// One try at answering a request, at one upstream.
//
// Thread safety: everything belongs to the routing loop's thread (Router's).
#pragma once

#include <memory>
#include <string>

#include "api/chat.h"
#include "gateway/retry_policy.h"

namespace tare::gateway {

// Hears of one attempt: OnChunk zero or more times, then exactly one of OnComplete and OnFailure;
// nothing after the attempt was destroyed, and nothing from inside Start.
class AttemptSink {
 public:
  virtual ~AttemptSink() = default;
  virtual void OnChunk(api::ChatChunk chunk) = 0;
  virtual void OnComplete(const api::Usage& usage) = 0;
  virtual void OnFailure(Failure failure) = 0;
};

// A running attempt; destroying it cancels it at the upstream.
class Attempt {
 public:
  virtual ~Attempt() = default;
};

// Where attempts go: a remote server or the local engine.
class Origin {
 public:
  virtual ~Origin() = default;
  // `model` is the upstream's own name for it; `sink` outlives the attempt.
  virtual std::unique_ptr<Attempt> Start(std::shared_ptr<const api::ChatRequest> request,
                                         const std::string& model, AttemptSink* sink) = 0;
};

}  // namespace tare::gateway
