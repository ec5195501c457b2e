// One chat or completion on its way from the HTTP request to the answer: the sink of its upstream
// call and the owner of its response.
//
// Ownership: the upstream keeps it (as the sink) until the terminal call; it keeps the call's
// handle, so a call whose client left is cancelled and one that ended is released.
// Thread safety: Start once; ChatSink's methods from the upstream's thread; the client's departure
// arrives on an I/O thread.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "api/wire_writer.h"
#include "base/clock.h"
#include "gateway/metrics.h"
#include "gateway/upstream.h"
#include "net/http_server.h"

namespace tare::gateway {

// What the answer needs to know of the request.
struct ChatContext {
  std::string endpoint;  // for metrics
  api::AnswerHead head;
  std::string request_id;
  Nanos received{};
  bool stream = false;
  bool include_usage = false;
  int choices = 1;
  std::shared_ptr<net::ResponseWriter> writer;
  std::shared_ptr<Metrics> metrics;
  const Clock* clock = nullptr;
};

class ChatExchange final : public ChatSink, public std::enable_shared_from_this<ChatExchange> {
 public:
  explicit ChatExchange(ChatContext context);

  // Hands the request to the upstream; failures are answered.
  void Start(Upstream& upstream, api::ChatRequest request);

  void OnRoute(const std::string& model) override;
  void OnChunk(api::ChatChunk chunk) override;
  void OnDone(const api::Usage& usage) override;
  void OnError(Error error) override;

 private:
  void ClientLeft();
  void BeginStream(std::string& out);
  void ObserveTokens(int tokens);
  // Counts the request and lets go of the call; the status is what the client saw. False when that
  // was done before.
  bool Settle(int status);

  ChatContext context_;
  std::optional<api::EventWriter> events_;  // from the stream's begin
  api::AnswerCollector collector_;
  bool stream_begun_ = false;
  bool cut_off_ = false;  // the upstream ended the answer before its end
  Nanos last_token_{};    // zero: none yet

  std::mutex mutex_;  // guards the rest
  std::unique_ptr<ChatCall> call_;
  bool client_left_ = false;
  bool settled_ = false;
};

// Answers with an error in the OpenAI shape, with Retry-After where trying again makes sense.
void SendError(net::ResponseWriter& writer, const Error& error, const std::string& request_id);

}  // namespace tare::gateway
