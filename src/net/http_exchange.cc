#include "net/http_exchange.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>
#include <ctime>
#include <iterator>
#include <utility>

namespace tare::net {

namespace {

// IMF-fixdate (RFC 9110, 5.6.7), made once a second and thread.
const std::string& HttpDate() {
  thread_local std::time_t made_for = 0;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now != made_for) {
    made_for = now;
    text = fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(now));
  }
  return text;
}

class Writer final : public ResponseWriter {
 public:
  explicit Writer(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~Writer() override { exchange_->Abandon(); }
  void Send(int status, const HttpHeaders& headers, std::string body) override {
    exchange_->Send(status, headers, body);
  }
  void StartStream(int status, const HttpHeaders& headers) override {
    exchange_->StartStream(status, headers);
  }
  bool Write(std::string_view piece) override { return exchange_->Write(piece); }
  void End() override { exchange_->End(); }
  void Abort() override { exchange_->Abort(); }
  void OnClose(std::function<void()> callback) override { exchange_->OnClose(std::move(callback)); }
  bool closed() const override { return exchange_->closed(); }

 private:
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace

void AppendStatusLine(std::string& out, int status) {
  fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\nDate: {}\r\n", status,
                 StatusPhrase(status), HttpDate());
}

std::shared_ptr<ResponseWriter> MakeWriter(std::shared_ptr<Exchange> exchange) {
  return std::make_shared<Writer>(std::move(exchange));
}

Exchange::Exchange(std::shared_ptr<ServerShared> shared, Facts facts, std::function<void()> wake)
    : shared_(std::move(shared)), facts_(facts), wake_(std::move(wake)) {}

void Exchange::AppendHead(int status, const HttpHeaders& headers, const std::string* length) {
  const bool until_close = length == nullptr && !facts_.chunked;
  keep_alive_ = facts_.keep_alive && !until_close && !shared_->draining.load();
  AppendStatusLine(pending_, status);
  for (const HttpHeader& header : headers) {
    pending_.append(header.name).append(": ").append(header.value).append("\r\n");
  }
  if (length != nullptr) {
    pending_.append("Content-Length: ").append(*length).append("\r\n");
  } else if (facts_.chunked) {
    pending_.append("Transfer-Encoding: chunked\r\n");
  }
  if (!keep_alive_) {
    pending_.append("Connection: close\r\n");
  } else if (!facts_.chunked) {
    pending_.append("Connection: keep-alive\r\n");  // an HTTP/1.0 client asked for it
  }
  pending_.append("\r\n");
}

void Exchange::Wake() {
  if (!wake_enabled_ || wake_sent_ || detached_) return;
  wake_sent_ = true;
  wake_();
}

void Exchange::Send(int status, const HttpHeaders& headers, std::string_view body) {
  std::lock_guard lock(mutex_);
  if (started_ || detached_) return;
  started_ = ended_ = true;
  const std::string length = std::to_string(body.size());
  AppendHead(status, headers, &length);
  if (!facts_.head) pending_.append(body);
  Wake();
}

void Exchange::StartStream(int status, const HttpHeaders& headers) {
  std::lock_guard lock(mutex_);
  if (started_ || detached_) return;
  started_ = true;
  AppendHead(status, headers, nullptr);
  Wake();
}

bool Exchange::Write(std::string_view piece) {
  std::lock_guard lock(mutex_);
  if (!started_ || ended_ || cut_ || detached_) return false;
  if (piece.empty() || facts_.head) return true;
  if (pending_.size() + piece.size() > shared_->options.max_queued_bytes) {
    shared_->slow_clients.fetch_add(1);
    pending_.clear();
    cut_ = true;
    Wake();
    return false;
  }
  if (facts_.chunked) {
    char size[16];
    const auto end = std::to_chars(size, size + sizeof size, piece.size(), 16).ptr;
    pending_.append(size, end).append("\r\n").append(piece).append("\r\n");
  } else {
    pending_.append(piece);
  }
  Wake();
  return true;
}

void Exchange::End() {
  std::lock_guard lock(mutex_);
  if (!started_ || ended_ || cut_ || detached_) return;
  ended_ = true;
  if (facts_.chunked && !facts_.head) pending_.append("0\r\n\r\n");
  Wake();
}

void Exchange::Abort() {
  std::lock_guard lock(mutex_);
  if (ended_ || detached_) return;
  started_ = cut_ = true;
  Wake();
}

void Exchange::Abandon() {
  bool unanswered = false;
  {
    std::lock_guard lock(mutex_);
    if (ended_ || detached_) return;
    unanswered = !started_;
  }
  if (!unanswered) {
    Abort();
    return;
  }
  const auto& options = shared_->options;
  const std::string message = "the server dropped the request without an answer";
  Send(500, {{"Content-Type", options.error_content_type}},
       options.error_body ? options.error_body(500, message) : message);
}

void Exchange::OnClose(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!detached_) {
      on_close_ = std::move(callback);
      return;
    }
    if (complete_) return;
  }
  callback();
}

bool Exchange::closed() const {
  std::lock_guard lock(mutex_);
  return detached_ || cut_;
}

Exchange::Progress Exchange::Take(std::string& out) {
  std::lock_guard lock(mutex_);
  wake_sent_ = false;
  out.swap(pending_);
  return {ended_, cut_, keep_alive_};
}

void Exchange::EnableWake() {
  std::lock_guard lock(mutex_);
  wake_enabled_ = true;
  // Whatever arrived before is fetched by the connection's own look after this call.
}

void Exchange::Detach(bool complete) {
  std::function<void()> callback;
  std::function<void()> wake;
  {
    std::lock_guard lock(mutex_);
    if (detached_) return;
    detached_ = true;
    complete_ = complete;
    callback.swap(on_close_);
    wake.swap(wake_);
    pending_ = std::string();
  }
  if (complete) return;
  shared_->disconnects.fetch_add(1);
  if (callback) callback();
}

}  // namespace tare::net
