// The seam between the gateway and whoever answers: the local engine and remote servers look alike.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/chat.h"
#include "api/request_reader.h"
#include "base/result.h"

namespace tare::gateway {

// Receives one answer. Calls come one at a time, from the upstream's own thread, and must not
// block: OnChunk zero or more times, then exactly one of OnDone and OnError. After a Cancel,
// nothing or the terminal call may still arrive.
class ChatSink {
 public:
  virtual ~ChatSink() = default;
  // Which model answers, when it may be another than the one asked for; before its first chunk.
  virtual void OnRoute(const std::string& /*model*/) {}
  virtual void OnChunk(api::ChatChunk chunk) = 0;
  virtual void OnDone(const api::Usage& usage) = 0;
  // When it makes sense to come back; before an OnError that means "busy".
  virtual void OnRetryAfter(Nanos /*wait*/) {}
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
  std::string parent;        // of an adapter: the model it adds to
  bool embeds = false;       // known to make embeddings; of servers elsewhere it is not known
};

// Thread safety: all methods may be called from any thread; Chat returns without waiting for an
// answer.
class Upstream {
 public:
  virtual ~Upstream() = default;
  virtual std::vector<ModelInfo> Models() const = 0;
  // Starts answering. A request that cannot be accepted fails here or at the sink, before any
  // chunk.
  virtual Result<std::unique_ptr<ChatCall>> Chat(api::ChatRequest request,
                                                 std::shared_ptr<ChatSink> sink) = 0;
  virtual bool Ready() const = 0;
  // A label (1 good, 0 neutral, -1 bad) for the answer of a request, for roll-outs. False when
  // nobody waits for one.
  virtual bool Feedback(const std::string& /*request_id*/, int /*label*/) { return false; }

  // Adapters: under their own name or as "MODEL:ADAPTER" they are models like others.
  virtual bool TakesAdapters() const { return false; }
  // Reads one; `done` is called once, from any thread.
  virtual void LoadAdapter(api::LoadAdapterRequest request, std::function<void(Status)> done) {
    done(Fail(ErrorKind::kUnsupported, "'{}' cannot be loaded: no model here takes adapters",
              request.name));
  }
  // Its name is gone when this returns; answers that use it go on.
  virtual Status UnloadAdapter(const std::string& name) {
    return Fail(ErrorKind::kNotFound, "no adapter '{}' is loaded", name);
  }
  // The model that `model` names an adapter of; empty when it is no adapter's name.
  virtual std::string AdapterBase(const std::string& /*model*/) const { return {}; }

  // The prompt of `request` as tokens, and tokens as text; only where the tokenizer is at hand.
  virtual Result<std::vector<TokenId>> Tokenize(const api::ChatRequest& request,
                                                bool /*add_special*/) const {
    return Fail(ErrorKind::kUnsupported, "the tokenizer of '{}' is not known here", request.model);
  }
  virtual Result<std::string> Detokenize(const std::string& model,
                                         std::span<const TokenId> /*tokens*/) const {
    return Fail(ErrorKind::kUnsupported, "the tokenizer of '{}' is not known here", model);
  }
};

// One whose model runs in this process.
class OwnUpstream : public Upstream {
 public:
  // No request is under way: none waits to be tokenized, the model holds none.
  virtual bool Idle() const = 0;
};

}  // namespace tare::gateway
