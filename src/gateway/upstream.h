// The seam between the gateway and whoever answers: the local engine and remote servers look alike.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/chat.h"
#include "base/result.h"

namespace tare::gateway {

// Receives one answer. Calls come one at a time, from the upstream's own thread, and must not
// block: OnChunk zero or more times, then exactly one of OnDone and OnError. After a Cancel,
// nothing or the terminal call may still arrive.
class ChatSink {
 public:
  virtual ~ChatSink() = default;
  virtual void OnChunk(api::ChatChunk chunk) = 0;
  virtual void OnDone(const api::Usage& usage) = 0;
  virtual void OnError(Error error) = 0;
};

// A running call. Destroying the handle cancels it.
class ChatCall {
 public:
  virtual ~ChatCall() = default;
  virtual void Cancel() = 0;
};

struct ModelInfo {
  std::string id;
  std::int64_t created = 0;  // Unix seconds
  int max_model_len = 0;     // tokens; 0 when unknown
};

// Thread safety: all methods may be called from any thread and return without waiting for an
// answer.
class Upstream {
 public:
  virtual ~Upstream() = default;
  virtual std::vector<ModelInfo> Models() const = 0;
  // Starts answering. A request that cannot be accepted fails here, before anything is sent.
  virtual Result<std::unique_ptr<ChatCall>> Chat(api::ChatRequest request,
                                                 std::shared_ptr<ChatSink> sink) = 0;
  virtual bool Ready() const = 0;
};

}  // namespace tare::gateway
