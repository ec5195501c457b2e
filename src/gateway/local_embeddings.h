// An embedder of this process as an upstream: tokenizer in front of it, the wire's entries behind.
//
// Small inputs are tokenized on the caller's thread; large ones on a thread of this object's own,
// which also writes large answers, so that neither holds up an I/O thread or the step thread.
//
// Ownership: shares the embedder; sinks are kept until their terminal call.
// Thread safety: see Upstream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/embedder.h"
#include "gateway/upstream.h"

namespace tare::gateway {

class LocalEmbeddings final : public OwnUpstream {
 public:
  // `name`: what clients call the model.
  LocalEmbeddings(std::string name, std::shared_ptr<engine::Embedder> embedder);
  ~LocalEmbeddings() override;

  std::vector<ModelInfo> Models() const override;
  Result<std::unique_ptr<ChatCall>> Chat(api::ChatRequest request,
                                         std::shared_ptr<ChatSink> sink) override;
  bool Ready() const override;
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
