#include "gateway/chat_exchange.h"

#include <utility>

#include "api/embeddings.h"
#include "api/wire_error.h"

namespace tare::gateway {

namespace {

// How long a client should wait when the server is busy or not ready and nothing better is known.
constexpr Nanos kRetryAfter = std::chrono::seconds(1);
constexpr int kClientLeft = 499;

net::HttpHeaders Headers(const std::string& request_id, const char* content_type) {
  return {{"Content-Type", content_type}, {"X-Request-Id", request_id}};
}

}  // namespace

void SendError(net::ResponseWriter& writer, const Error& error, const std::string& request_id,
               Nanos retry_after) {
  net::HttpHeaders headers = Headers(request_id, "application/json");
  const int status = api::HttpStatus(error);
  if (status == 503 || status == 429) {
    const Nanos wait = retry_after > Nanos{} ? retry_after : kRetryAfter;
    headers.push_back(
        {"Retry-After", std::to_string(std::chrono::ceil<std::chrono::seconds>(wait).count())});
  }
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
  const api::Usage used = Charged({0, tokens_.load(), 0});
  Settle(kClientLeft, &used, "client_left");
}

void ChatExchange::BeginStream(std::string& out) {
  if (stream_begun_) return;
  stream_begun_ = true;
  events_.emplace(context_.head, context_.include_usage);
  net::HttpHeaders headers = Headers(context_.record.id, "text/event-stream");
  headers.push_back({"Cache-Control", "no-cache"});
  headers.push_back({"X-Accel-Buffering", "no"});
  context_.writer->StartStream(200, headers);
  for (int i = 0; i < context_.choices; ++i) events_->Role(out, i);
}

void ChatExchange::ObserveTokens(int tokens) {
  if (tokens == 0) return;
  const Nanos now = context_.clock->Now();
  tokens_.fetch_add(tokens);
  if (last_token_ == Nanos{}) {
    first_token_ns_.store((now - context_.received).count());
    context_.metrics->ObserveFirstToken(now - context_.received);
  } else {
    context_.metrics->ObserveGap(now - last_token_);
  }
  last_token_ = now;
}

void ChatExchange::OnRoute(const std::string& model) {
  if (stream_begun_) return;
  context_.head.model = model;
}

void ChatExchange::OnChunk(api::ChatChunk chunk) {
  if (context_.embeddings) {
    embeddings_ = std::move(chunk.text);
    return;
  }
  ObserveTokens(chunk.tokens);
  if (chunk.finish == api::FinishReason::kCancelled) {
    cut_off_ = true;
    chunk.finish = api::FinishReason::kNone;
  }
  if (!context_.record.stream) {
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
  const api::Usage charged = Charged(usage);
  if (!Settle(200, &charged)) return;
  context_.metrics->AddTokens(usage);
  if (context_.embeddings) {
    context_.writer->Send(200, Headers(context_.record.id, "application/json"),
                          api::WriteEmbeddings(context_.head, embeddings_, usage));
    return;
  }
  context_.metrics->ObserveWhole(context_.clock->Now() - context_.received);
  if (context_.record.stream) {
    std::string out;
    BeginStream(out);
    events_->UsageIfWanted(out, usage);
    events_->Done(out);
    context_.writer->Write(out);
    context_.writer->End();
  } else {
    context_.writer->Send(200, Headers(context_.record.id, "application/json"),
                          collector_.Write(context_.head, usage));
  }
}

void ChatExchange::OnError(Error error) {
  if (!Settle(api::HttpStatus(error), nullptr,
              error.code.empty() ? ToString(error.kind) : error.code)) {
    return;
  }
  if (stream_begun_) {
    // The status is gone; an error event and no "[DONE]" keep a cut answer from looking whole.
    if (error.code.empty()) error.code = api::kStreamInterrupted;
    std::string out;
    events_->Error(out, error);
    context_.writer->Write(out);
    context_.writer->End();
  } else {
    SendError(*context_.writer, error, context_.record.id, retry_after_);
  }
}

api::Usage ChatExchange::Charged(api::Usage usage) const {
  if (usage.prompt_tokens == 0) {
    usage.prompt_tokens = static_cast<int>(context_.reservation.prompt_estimate());
  }
  return usage;
}

bool ChatExchange::Settle(int status, const api::Usage* usage, const std::string& error) {
  std::unique_ptr<ChatCall> call;
  {
    std::lock_guard lock(mutex_);
    if (settled_) return false;
    settled_ = true;
    call = std::move(call_);
  }
  const Nanos duration = context_.clock->Now() - context_.received;
  context_.metrics->CountRequest(context_.record.path, status, duration);
  if (usage != nullptr) {
    context_.reservation.Settle(*usage);
  } else {
    context_.reservation.Release();
  }
  if (context_.log == nullptr) return true;
  AccessRecord& record = context_.record;
  record.status = status;
  record.duration = duration;
  record.first_token = Nanos(first_token_ns_.load());
  record.error = error;
  if (usage != nullptr) record.usage = *usage;
  // Only the first to settle comes here; a client that left does not know who answered.
  if (status == 200) record.answered_by = context_.head.model;
  context_.log->Write(record, std::chrono::system_clock::now());
  return true;
}

}  // namespace tare::gateway
