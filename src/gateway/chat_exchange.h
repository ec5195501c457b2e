// One chat or completion on its way from the HTTP request to the answer: the sink of its upstream
// call and the owner of its response.
//
// Ownership: the upstream keeps it (as the sink) until the terminal call; it keeps the call's
// handle, so a call whose client left is cancelled and one that ended is released.
// Thread safety: Start once; ChatSink's methods from the upstream's thread; the client's departure
// arrives on an I/O thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "api/wire_writer.h"
#include "base/clock.h"
#include "gateway/access_log.h"
#include "gateway/metrics.h"
#include "gateway/quota.h"
#include "gateway/upstream.h"
#include "net/http_server.h"

namespace tare::gateway {

// What the answer needs to know of the request.
struct ChatContext {
  AccessRecord record;  // path, id, model, tenant, stream...; the end is filled in here
  api::AnswerHead head;
  Nanos received{};
  bool include_usage = false;
  bool embeddings = false;  // the answer is vectors: head.chat has no meaning
  int choices = 1;
  QuotaLedger::Reservation reservation;
  std::shared_ptr<net::ResponseWriter> writer;
  std::shared_ptr<Metrics> metrics;
  std::shared_ptr<AccessLog> log;  // null: none
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
  void OnRetryAfter(Nanos wait) override { retry_after_ = wait; }
  void OnError(Error error) override;

 private:
  void ClientLeft();
  void BeginStream(std::string& out);
  void ObserveTokens(int tokens);
  // Counts and logs the request and lets go of the call; the status is what the client saw. False
  // when that was done before. `usage` null: the call failed and costs nothing.
  bool Settle(int status, const api::Usage* usage, const std::string& error = "");
  // What a call is charged whose upstream tells less than all.
  api::Usage Charged(api::Usage usage) const;

  ChatContext context_;
  std::optional<api::EventWriter> events_;  // from the stream's begin
  api::AnswerCollector collector_;
  std::string embeddings_;  // the entries of such an answer
  bool stream_begun_ = false;
  bool cut_off_ = false;                         // the upstream ended the answer before its end
  Nanos last_token_{};                           // zero: none yet
  std::atomic<std::int64_t> first_token_ns_{0};  // since received; 0: none yet
  std::atomic<int> tokens_{0};                   // that reached this place
  Nanos retry_after_{};  // advice for an error that means "busy"; zero: the usual

  std::mutex mutex_;  // guards the rest
  std::unique_ptr<ChatCall> call_;
  bool client_left_ = false;
  bool settled_ = false;
};

// Answers with an error in the OpenAI shape, with Retry-After where trying again makes sense.
void SendError(net::ResponseWriter& writer, const Error& error, const std::string& request_id,
               Nanos retry_after = {});

}  // namespace tare::gateway
