// Test helper: a router before scripted servers. Times are those of failoverbench's scenarios,
// scaled by kSecond.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gateway/router.h"
#include "net/raw_server.h"

namespace tare::gateway {

// One second of a scenario.
inline constexpr Nanos kSecond = std::chrono::milliseconds(50);

inline constexpr int kAnswerTokens = 60;

class Collected final : public ChatSink {
 public:
  void OnRoute(const std::string& model) override { answered_by = model; }
  void OnChunk(api::ChatChunk chunk) override {
    EXPECT_NE(answered_by, "") << "who answers is known before the first piece";
    text += chunk.text;
    if (chunk.finish != api::FinishReason::kNone) finish = chunk.finish;
  }
  void OnDone(const api::Usage& done_usage) override {
    usage = done_usage;
    End();
  }
  void OnRetryAfter(Nanos wait) override { retry_after = wait; }
  void OnError(Error failure) override {
    error = std::move(failure);
    End();
  }
  // Whether the call ended within a generous limit: no scenario may hang.
  bool Wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return ended_; });
  }

  std::string answered_by;
  std::string text;
  api::FinishReason finish = api::FinishReason::kNone;
  api::Usage usage;
  std::optional<Error> error;
  Nanos retry_after{};

 private:
  void End() {
    std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
};

inline std::string Whole() {
  std::string text;
  for (int i = 0; i < kAnswerTokens; ++i) text += fmt::format("t{} ", i);
  return text;
}

// A scripted server: `script(connection, request number)` answers one request, false closes.
class FakeServer {
 public:
  using Script = std::function<bool(net::RawConnection&, int)>;
  explicit FakeServer(Script script)
      : server_([this, script = std::move(script)](net::RawConnection& connection, int) {
          while (true) {
            std::string request = connection.ReadRequest();
            if (request.empty()) return;
            int number = 0;
            {
              std::lock_guard lock(mutex_);
              times_.push_back(net::MonotonicNow());
              current_ = request;
              last_request_ = std::move(request);
              number = static_cast<int>(times_.size()) - 1;
            }
            if (!script(connection, number)) return;
          }
        }) {}

  int requests() const {
    std::lock_guard lock(mutex_);
    return static_cast<int>(times_.size());
  }
  // Time between two requests, in scenario seconds.
  double Gap(std::size_t first, std::size_t second) const {
    std::lock_guard lock(mutex_);
    return ToSeconds(times_.at(second) - times_.at(first)) / ToSeconds(kSecond);
  }
  std::string last_request() const {
    std::lock_guard lock(mutex_);
    return last_request_;
  }
  // The request a script is answering, on its connection's thread.
  static const std::string& Current() { return current_; }
  int connections() const { return server_.connections(); }
  net::Url url() const { return *net::ParseUrl(server_.Url()); }

 private:
  mutable std::mutex mutex_;
  static inline thread_local std::string current_;
  std::vector<Nanos> times_;
  std::string last_request_;
  net::RawServer server_;  // last: its threads use the others
};

inline bool Status(net::RawConnection& connection, int status, const std::string& body,
                   const std::string& headers = "") {
  return connection.Write(fmt::format(
      "HTTP/1.1 {} X\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}", status,
      headers, body.size(), body));
}

inline void Event(net::RawConnection& connection, const std::string& data,
                  const char* end = "\n\n") {
  const std::string event = "data: " + data + end;
  connection.Write(fmt::format("{:x}\r\n{}\r\n", event.size(), event));
}
inline void Head(net::RawConnection& connection) {
  connection.Write(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  Event(connection, R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})");
}
inline void Tokens(net::RawConnection& connection, int from, int to) {
  for (int i = from; i < to; ++i) {
    Event(connection,
          fmt::format(R"({{"choices":[{{"index":0,"delta":{{"content":"t{} "}}}}]}})", i));
  }
}
inline void Finish(net::RawConnection& connection) {
  Event(connection, R"({"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]})");
}
inline void Usage(net::RawConnection& connection) {
  Event(connection, R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":60}})");
}
inline bool End(net::RawConnection& connection) {
  Event(connection, "[DONE]");
  return connection.Write("0\r\n\r\n");
}
inline bool Answer(net::RawConnection& connection) {
  Head(connection);
  Tokens(connection, 0, kAnswerTokens);
  Finish(connection);
  Usage(connection);
  return End(connection);
}
inline bool Healthy(net::RawConnection& connection, int) { return Answer(connection); }

inline constexpr const char* kContextError =
    R"({"error":{"message":"too long","type":"invalid_request_error","param":"messages",)"
    R"("code":"context_length_exceeded"}})";
inline constexpr const char* kPolicyError =
    R"({"error":{"message":"not that topic","type":"invalid_request_error","param":null,)"
    R"("code":"content_policy_violation"}})";

class RouterTest : public ::testing::Test {
 protected:
  // A primary that follows `script` and a healthy fallback with more context.
  void Start(FakeServer::Script script, FakeServer::Script fallback = Healthy) {
    primary_ = std::make_unique<FakeServer>(std::move(script));
    fallback_ = std::make_unique<FakeServer>(std::move(fallback));
    RouterConfig config;
    config.retry.unit = kSecond;
    config.retry.max_retry_after = 5 * kSecond;
    config.breaker.open_for = 10 * kSecond;
    config.upstreams = {{Remote("primary", *primary_), nullptr, 256},
                        {Remote("fallback", *fallback_), nullptr, 256}};
    config.upstreams[0].probe = probe_;
    config.upstreams[0].scrape = scrape_;
    config.routes = {{"m", {"alias"}, {{"primary", "org/m", 4096}, {"fallback", "big", 8192}}}};
    config.routes[0].balance = balance_;
    if (shadow_) {
      config.routes[0].shadow = shadow_;
      config.routes[0].targets.pop_back();
      config.routes[0].shadow_target = {"fallback", "shadow", 8192};
    }
    config.routes[0].queue.interactive.shed = shed_;
    config.upstreams[1].assistant_prefix = config.routes[0].continue_cut_streams = continues_;
    config.readiness = readiness_;
    config_ = config;
    auto router = Router::Create(std::move(config), hosted_);
    ASSERT_TRUE(router) << router.error().message;
    router_ = *router;
  }
  static RemoteOptions Remote(const char* name, const FakeServer& server) {
    RemoteOptions options;
    options.name = name;
    options.url = server.url();
    options.first_token_timeout = 10 * kSecond;
    options.gap_timeout = 15 * kSecond;
    options.total_timeout = 90 * kSecond;
    options.finish_timeout = 2 * kSecond;
    return options;
  }
  static api::ChatRequest Request(bool stream, const char* model = "m") {
    api::ChatRequest request;
    request.model = model;
    request.stream = stream;
    request.messages_json = R"([{"role":"user","content":"x"}])";
    request.wire_body =
        R"({"model":"m","messages":[{"role":"user","content":"x"}],"custom":[1,2]})";
    return request;
  }
  // Sends one request and waits for its end. `seconds`: how long it took, in scenario time.
  std::shared_ptr<Collected> Ask(bool stream) {
    auto sink = std::make_shared<Collected>();
    const Nanos begin = net::MonotonicNow();
    auto call = router_->Chat(Request(stream), sink);
    EXPECT_TRUE(call);
    EXPECT_TRUE(sink->Wait()) << "hangs";
    seconds_ = ToSeconds(net::MonotonicNow() - begin) / ToSeconds(kSecond);
    return sink;
  }
  static bool Complete(const Collected& sink) {
    return !sink.error && sink.text == Whole() && sink.finish == api::FinishReason::kStop;
  }
  // The one thing that must never be: success with a part of the text.
  static bool Honest(const Collected& sink) { return sink.error.has_value() || Complete(sink); }
  UpstreamStats Stats(std::size_t upstream) { return router_->Stats().at(upstream); }

  std::unique_ptr<FakeServer> primary_;
  std::unique_ptr<FakeServer> fallback_;
  std::shared_ptr<Router> router_;
  double seconds_ = 0;
  bool hosted_ = false;
  ProbeOptions probe_;
  ScrapeOptions scrape_;
  Balance balance_ = Balance::kOrdered;
  std::optional<ShadowPolicy> shadow_;  // copies go to the fallback, which is no target then
  ShedOptions shed_;
  bool continues_ = false;  // cut streams go on at the fallback
  std::shared_ptr<Readiness> readiness_;
  RouterConfig config_;
};

}  // namespace tare::gateway
