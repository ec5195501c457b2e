// The engine as an upstream: chat template and tokenizer in front of it, wire chunks behind it.
//
// Small prompts are tokenized on the caller's thread, large ones on a thread of this object's own,
// so that a client with a book does not hold up the I/O thread of others.
//
// Ownership: shares the engine; sinks are kept until their terminal call.
// Thread safety: see Upstream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/adapter_store.h"
#include "engine/engine.h"
#include "gateway/upstream.h"

namespace tare::gateway {

struct LocalUpstreamOptions {
  std::string name;              // what clients call the model
  bool endless_context = false;  // the engine forgets old tokens: lengths are not bounded
  std::shared_ptr<engine::AdapterStore> adapters;  // null: it takes none
};

class LocalUpstream final : public OwnUpstream {
 public:
  LocalUpstream(LocalUpstreamOptions options, std::shared_ptr<engine::Engine> engine);
  ~LocalUpstream() override;

  std::vector<ModelInfo> Models() const override;
  Result<std::unique_ptr<ChatCall>> Chat(api::ChatRequest request,
                                         std::shared_ptr<ChatSink> sink) override;
  bool Ready() const override;
  bool TakesAdapters() const override;
  void LoadAdapter(api::LoadAdapterRequest request, std::function<void(Status)> done) override;
  Status UnloadAdapter(const std::string& name) override;
  std::string AdapterBase(const std::string& model) const override;
  bool Idle() const override;
  Result<std::vector<TokenId>> Tokenize(const api::ChatRequest& request,
                                        bool add_special) const override;
  Result<std::string> Detokenize(const std::string& model,
                                 std::span<const TokenId> tokens) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tare::gateway
