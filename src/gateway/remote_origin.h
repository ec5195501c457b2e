// An OpenAI-compatible server (vLLM, SGLang, llama-server, hosted APIs) over HTTP.
//
// Answers are always asked for as streams, whatever the client wants: that shows a silent server
// early, lets a cut be told from an end, and cancels at once. Differences between servers are
// handled here: comments while queued, null roles, missing usage or "[DONE]", `stream_options`
// refused (asked again without), a whole answer where a stream was asked for. Embeddings alone are
// no streams: their answer comes whole, within the total time.
//
// Ownership: loop and client outlive it. Thread safety: belongs to the loop's thread.
#pragma once

#include <memory>
#include <string>

#include "gateway/attempt.h"
#include "net/event_loop.h"
#include "net/http_client.h"
#include "net/url.h"

namespace tare::gateway {

struct RemoteOptions {
  std::string name;     // for messages
  net::Url url;         // with or without /v1
  std::string api_key;  // sent as a bearer token; empty: none
  Nanos connect_timeout = std::chrono::seconds(5);
  Nanos first_token_timeout = std::chrono::seconds(10);  // from the start to the first content
  Nanos gap_timeout = std::chrono::seconds(15);          // without any byte, after the head
  Nanos total_timeout = std::chrono::minutes(10);
  Nanos finish_timeout = std::chrono::seconds(2);  // from the finish to "[DONE]" or usage
};
// Where chats, or completions, of the server at `base` are asked for, and where embeddings.
net::Url ChatEndpoint(const net::Url& base, bool chat);
net::Url EmbeddingsEndpoint(const net::Url& base);
// Whether both mean the same server, asked in the same way.
bool Same(const RemoteOptions& a, const RemoteOptions& b);

class RemoteOrigin final : public Origin {
 public:
  RemoteOrigin(RemoteOptions options, net::EventLoop* loop, net::HttpClient* client);
  ~RemoteOrigin() override;
  std::unique_ptr<Attempt> Start(std::shared_ptr<const api::ChatRequest> request,
                                 const std::string& model, AttemptSink* sink) override;

  struct Shared;  // what attempts need of it

 private:
  const std::shared_ptr<Shared> shared_;
};

}  // namespace tare::gateway
