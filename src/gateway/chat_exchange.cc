#include "gateway/chat_exchange.h"

#include <utility>

#include "api/wire_error.h"

namespace tare::gateway {

namespace {

// Seconds a client should wait when the server is busy or not ready.
constexpr const char* kRetryAfter = "1";
constexpr int kClientLeft = 499;

net::HttpHeaders Headers(const std::string& request_id, const char* content_type) {
  return {{"Content-Type", content_type}, {"X-Request-Id", request_id}};
}

}  // namespace

void SendError(net::ResponseWriter& writer, const Error& error, const std::string& request_id) {
  net::HttpHeaders headers = Headers(request_id, "application/json");
  const int status = api::HttpStatus(error);
  if (status == 503 || status == 429) headers.push_back({"Retry-After", kRetryAfter});
  if (status == 401) headers.push_back({"WWW-Authenticate", "Bearer"});
  writer.Send(status, headers, api::ErrorBody(error));
}

ChatExchange::ChatExchange(ChatContext context) : context_(std::move(context)) {}

void ChatExchange::Start(Upstream& upstream, api::ChatRequest request) {
  context_.writer->OnClose([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->ClientLeft();
  });
  auto call = upstream.Chat(std::move(request), shared_from_this());
  if (!call) {
    OnError(std::move(call).error());
    return;
  }
  // Without the mutex: releasing a call may reach into the upstream.
  std::unique_ptr<ChatCall> unneeded;
  std::lock_guard lock(mutex_);
  if (client_left_ || settled_) {
    unneeded = std::move(*call);
  } else {
    call_ = std::move(*call);
  }
}

void ChatExchange::ClientLeft() {
  std::unique_ptr<ChatCall> call;
  {
    std::lock_guard lock(mutex_);
    client_left_ = true;
    call = std::move(call_);
  }
  call.reset();  // cancels
  Settle(kClientLeft);
}

void ChatExchange::BeginStream(std::string& out) {
  if (stream_begun_) return;
  stream_begun_ = true;
  events_.emplace(context_.head, context_.include_usage);
  net::HttpHeaders headers = Headers(context_.request_id, "text/event-stream");
  headers.push_back({"Cache-Control", "no-cache"});
  headers.push_back({"X-Accel-Buffering", "no"});
  context_.writer->StartStream(200, headers);
  for (int i = 0; i < context_.choices; ++i) events_->Role(out, i);
}

void ChatExchange::ObserveTokens(int tokens) {
  if (tokens == 0) return;
  const Nanos now = context_.clock->Now();
  if (last_token_ == Nanos{}) {
    context_.metrics->ObserveFirstToken(now - context_.received);
  } else {
    context_.metrics->ObserveGap(now - last_token_);
  }
  last_token_ = now;
}

void ChatExchange::OnRoute(const std::string& model) {
  if (!stream_begun_) context_.head.model = model;
}

void ChatExchange::OnChunk(api::ChatChunk chunk) {
  ObserveTokens(chunk.tokens);
  if (chunk.finish == api::FinishReason::kCancelled) {
    cut_off_ = true;
    chunk.finish = api::FinishReason::kNone;
  }
  if (!context_.stream) {
    collector_.Add(std::move(chunk));
    return;
  }
  std::string out;
  BeginStream(out);
  events_->Chunk(out, chunk);
  context_.writer->Write(out);
}

void ChatExchange::OnDone(const api::Usage& usage) {
  if (cut_off_) {
    OnError({ErrorKind::kUnavailable, "the answer was cut off: the server is shutting down", "",
             api::kStreamInterrupted});
    return;
  }
  if (!Settle(200)) return;
  context_.metrics->AddTokens(usage);
  context_.metrics->ObserveWhole(context_.clock->Now() - context_.received);
  if (context_.stream) {
    std::string out;
    BeginStream(out);
    events_->UsageIfWanted(out, usage);
    events_->Done(out);
    context_.writer->Write(out);
    context_.writer->End();
  } else {
    context_.writer->Send(200, Headers(context_.request_id, "application/json"),
                          collector_.Write(context_.head, usage));
  }
}

void ChatExchange::OnError(Error error) {
  if (!Settle(api::HttpStatus(error))) return;
  if (stream_begun_) {
    // The status is gone; an error event and no "[DONE]" keep a cut answer from looking whole.
    if (error.code.empty()) error.code = api::kStreamInterrupted;
    std::string out;
    events_->Error(out, error);
    context_.writer->Write(out);
    context_.writer->End();
  } else {
    SendError(*context_.writer, error, context_.request_id);
  }
}

bool ChatExchange::Settle(int status) {
  std::unique_ptr<ChatCall> call;
  {
    std::lock_guard lock(mutex_);
    if (settled_) return false;
    settled_ = true;
    call = std::move(call_);
  }
  context_.metrics->CountRequest(context_.endpoint, status,
                                 context_.clock->Now() - context_.received);
  return true;
}

}  // namespace tare::gateway
