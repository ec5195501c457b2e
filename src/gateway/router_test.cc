// The router against servers that misbehave on purpose. The scenarios S01 to S16 are those of
// failoverbench's catalogue (github.com/failoverbench/failoverbench, methodology v0.1), in time
// scaled by kScale so that a second of theirs is a few milliseconds here.
#include "gateway/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "api/wire_error.h"
#include "net/http_server.h"
#include "net/raw_client.h"
#include "net/raw_server.h"

namespace tare::gateway {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// One second of a scenario.
constexpr Nanos kSecond = milliseconds(50);

constexpr int kAnswerTokens = 60;

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

std::string Whole() {
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

bool Status(net::RawConnection& connection, int status, const std::string& body,
            const std::string& headers = "") {
  return connection.Write(fmt::format(
      "HTTP/1.1 {} X\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}", status,
      headers, body.size(), body));
}

void Event(net::RawConnection& connection, const std::string& data, const char* end = "\n\n") {
  const std::string event = "data: " + data + end;
  connection.Write(fmt::format("{:x}\r\n{}\r\n", event.size(), event));
}
void Head(net::RawConnection& connection) {
  connection.Write(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  Event(connection, R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})");
}
void Tokens(net::RawConnection& connection, int from, int to) {
  for (int i = from; i < to; ++i) {
    Event(connection,
          fmt::format(R"({{"choices":[{{"index":0,"delta":{{"content":"t{} "}}}}]}})", i));
  }
}
void Finish(net::RawConnection& connection) {
  Event(connection, R"({"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]})");
}
void Usage(net::RawConnection& connection) {
  Event(connection, R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":60}})");
}
bool End(net::RawConnection& connection) {
  Event(connection, "[DONE]");
  return connection.Write("0\r\n\r\n");
}
bool Answer(net::RawConnection& connection) {
  Head(connection);
  Tokens(connection, 0, kAnswerTokens);
  Finish(connection);
  Usage(connection);
  return End(connection);
}
bool Healthy(net::RawConnection& connection, int) { return Answer(connection); }

constexpr const char* kContextError =
    R"({"error":{"message":"too long","type":"invalid_request_error","param":"messages",)"
    R"("code":"context_length_exceeded"}})";
constexpr const char* kPolicyError =
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
  std::shared_ptr<Readiness> readiness_;
  RouterConfig config_;
};

TEST_F(RouterTest, PassesTheClientsBodyOnUnderTheUpstreamsModelName) {
  Start(Healthy);
  auto sink = Ask(true);
  EXPECT_TRUE(Complete(*sink));
  EXPECT_EQ(sink->usage.prompt_tokens, 9);
  EXPECT_EQ(sink->answered_by, "m") << "the primary answers under the name asked for";
  EXPECT_THAT(primary_->last_request(), HasSubstr("POST /v1/chat/completions HTTP/1.1"));
  EXPECT_THAT(primary_->last_request(), HasSubstr(R"("model":"org/m")"));
  EXPECT_THAT(primary_->last_request(), HasSubstr(R"("custom":[1,2])"));
  EXPECT_EQ(fallback_->requests(), 0);
}

TEST_F(RouterTest, AnswersThatEndWithDoneLeaveTheirConnectionToTheNext) {
  Start([](net::RawConnection& c, int) {
    const std::string events =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
        "data: [DONE]\n\n";
    // In one write, so that the message's end is there when the next request comes.
    return c.Write(
        fmt::format("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
                    events.size(), events));
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Ask(i % 2 == 0)->text, "a");
  EXPECT_EQ(primary_->requests(), 5);
  EXPECT_EQ(primary_->connections(), 1);
}

// The router on the HTTP server's own thread: requests, answers and a client that leaves.
TEST_F(RouterTest, WorksOnTheServersThread) {
  hosted_ = true;
  std::promise<void> cancelled;
  Start([&](net::RawConnection& c, int n) {
    if (n < 3) return Answer(c);
    c.WaitForClose();
    cancelled.set_value();
    return false;
  });
  struct Sink final : ChatSink {
    explicit Sink(std::shared_ptr<net::ResponseWriter> to) : writer(std::move(to)) {}
    void OnChunk(api::ChatChunk chunk) override { text += chunk.text; }
    void OnDone(const api::Usage&) override { writer->Send(200, {}, text); }
    void OnError(Error error) override { writer->Send(502, {}, error.message); }
    const std::shared_ptr<net::ResponseWriter> writer;
    std::string text;
  };
  std::unique_ptr<ChatCall> last;
  auto server = net::HttpServer::Start({}, [&](net::HttpRequest, auto writer) {
    auto call = router_->Chat(Request(false), std::make_shared<Sink>(writer));
    ASSERT_TRUE(call);
    last = std::move(*call);
    writer->OnClose([&] { last.reset(); });
  });
  ASSERT_TRUE(server) << server.error().message;
  ASSERT_TRUE((*server)->Host(router_->loop()));
  {
    net::RawClient client((*server)->port());
    for (int i = 0; i < 3; ++i) {
      client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
      EXPECT_THAT(client.ReadResponse(), HasSubstr(Whole()));
    }
    client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    while (primary_->requests() < 4) std::this_thread::yield();
  }
  cancelled.get_future().wait();
  server->reset();
  router_.reset();
}

// A test of what a server's own words do: waits until its watch says `so`.
template <typename Says>
void WaitFor(const Router& router, Says so) {
  const Nanos patience = net::MonotonicNow() + std::chrono::seconds(20);
  while (!so(router.Stats().at(0).watch)) {
    ASSERT_LT(net::MonotonicNow(), patience);
    std::this_thread::yield();
  }
}

bool IsGet(const std::string& request, const char* path) {
  return request.rfind(std::string("GET ") + path + " ", 0) == 0;
}

TEST_F(RouterTest, ProbesTakeAnUpstreamOutOfTrafficAndBringItBack) {
  std::atomic<int> status{200};
  probe_.path = "/health";
  probe_.interval = milliseconds(1);
  Start([&](net::RawConnection& c, int) {
    return IsGet(FakeServer::Current(), "/health") ? Status(c, status, "{}") : Answer(c);
  });
  WaitFor(*router_, [](const WatchStats& watch) { return watch.probes_well > 0; });
  EXPECT_EQ(Ask(false)->answered_by, "m");
  status = 503;
  WaitFor(*router_, [](const WatchStats& watch) { return watch.down; });
  EXPECT_EQ(Stats(0).watch.last_failure, "status 503");
  const std::uint64_t attempts = Stats(0).attempts;
  EXPECT_EQ(Ask(false)->answered_by, "big");
  EXPECT_EQ(Stats(0).attempts, attempts) << "no traffic while it is down";
  EXPECT_EQ(Stats(0).failures, 0u) << "probes are no attempts";
  status = 204;
  WaitFor(*router_, [](const WatchStats& watch) { return !watch.down; });
  EXPECT_EQ(Ask(false)->answered_by, "m");
}

TEST_F(RouterTest, AProbeThatGeneratesWantsARealAnswer) {
  std::atomic<bool> answers{true};
  probe_.generate = "org/m";
  probe_.interval = milliseconds(1);
  probe_.down_after = 1;
  Start([&](net::RawConnection& c, int) {
    EXPECT_THAT(FakeServer::Current(), HasSubstr(R"("model":"org/m")"));
    EXPECT_THAT(FakeServer::Current(), HasSubstr(R"("max_tokens":1)"));
    return Status(c, 200,
                  answers ? R"({"choices":[{"message":{"content":"A"},"finish_reason":"length"}]})"
                          : R"({"choices":[]})");
  });
  WaitFor(*router_, [](const WatchStats& watch) { return watch.probes_well > 1; });
  EXPECT_FALSE(Stats(0).watch.down);
  answers = false;
  WaitFor(*router_, [](const WatchStats& watch) { return watch.down; });
  EXPECT_THAT(Stats(0).watch.last_failure, HasSubstr("without an answer"));
}

TEST_F(RouterTest, ScrapesCorrectOwnCountsAndNeverHalt) {
  std::atomic<bool> readable{true};
  balance_ = Balance::kLeastTokens;
  scrape_.path = "/metrics";
  scrape_.interval = milliseconds(1);
  scrape_.stale_after = milliseconds(700);
  Start([&](net::RawConnection& c, int) {
    if (!IsGet(FakeServer::Current(), "/metrics")) return Answer(c);
    return readable ? Status(c, 200, "vllm:num_requests_running{m=\"a\"} 40\n")
                    : Status(c, 500, "{}");
  });
  WaitFor(*router_, [](const WatchStats& watch) { return watch.scrapes_read > 0; });
  EXPECT_EQ(Stats(0).watch.foreign_requests, 40);
  EXPECT_NE(Ask(false)->text, "");
  EXPECT_EQ(Stats(0).attempts, 0u) << "others keep the primary busy";
  readable = false;
  WaitFor(*router_, [](const WatchStats& watch) { return watch.scrape_stale; });
  EXPECT_GT(Stats(0).watch.scrapes_failed, 0u);
  // Back to own counts, by which both are idle: shared by chance, and going on.
  for (int i = 0; i < 64 && Stats(0).attempts == 0; ++i) EXPECT_NE(Ask(false)->text, "");
  EXPECT_GT(Stats(0).attempts, 0u);
}

TEST_F(RouterTest, CopiesAreComparedAndNeverReachTheClient) {
  shadow_ = ShadowPolicy{1.0, 8};
  std::atomic<bool> same{true};
  Start(Healthy, [&](net::RawConnection& c, int) {
    EXPECT_THAT(FakeServer::Current(), HasSubstr(R"("model":"shadow")"));
    if (same) return Answer(c);
    Head(c);
    Tokens(c, 0, 3);
    Finish(c);
    return End(c);
  });
  const auto wait_for = [&](auto so) {
    const Nanos patience = net::MonotonicNow() + std::chrono::seconds(20);
    while (!so(router_->Shadows().at(0)) && net::MonotonicNow() < patience) {
      std::this_thread::yield();
    }
    return router_->Shadows().at(0);
  };
  EXPECT_TRUE(Complete(*Ask(true)));
  EXPECT_EQ(wait_for([](const ShadowReport& r) { return r.same == 1; }).same, 1u);
  same = false;
  EXPECT_TRUE(Complete(*Ask(false)));
  const ShadowReport report = wait_for([](const ShadowReport& r) { return r.different == 1; });
  EXPECT_EQ(report.different, 1u);
  EXPECT_EQ(report.answered, 2u);
  EXPECT_EQ(report.request.tokens, 120u);
  EXPECT_EQ(report.copy.tokens, 63u);
  EXPECT_GT(report.copy.e2e_s, 0);
  EXPECT_EQ(Stats(1).successes, 0u) << "copies are no attempts";
}

TEST_F(RouterTest, ACopyThatHangsOrFailsCostsTheRequestNothing) {
  shadow_ = ShadowPolicy{1.0, 1};
  Start(Healthy, [](net::RawConnection& c, int n) {
    if (n == 0) return Status(c, 500, "{}");
    c.WaitForClose();
    return false;
  });
  EXPECT_TRUE(Complete(*Ask(false)));
  while (router_->Shadows().at(0).failed < 1) std::this_thread::yield();
  EXPECT_FALSE(Stats(1).breaker_open);
  EXPECT_EQ(Stats(1).failures, 0u);
  EXPECT_TRUE(Complete(*Ask(false)));  // its copy hangs
  EXPECT_TRUE(Complete(*Ask(false)));  // one at a time: no copy
  const ShadowReport report = router_->Shadows().at(0);
  EXPECT_EQ(report.running, 1);
  EXPECT_EQ(report.skipped, 1u);
  EXPECT_EQ(Stats(1).running, 1) << "it counts as what keeps its server busy";
}

TEST_F(RouterTest, ACopyEndsWhenItsRequestsClientLeaves) {
  shadow_ = ShadowPolicy{1.0, 1};
  const auto hang = [](net::RawConnection& c, int) {
    c.WaitForClose();
    return false;
  };
  Start(hang, hang);
  auto sink = std::make_shared<Collected>();
  auto call = router_->Chat(Request(false), sink);
  ASSERT_TRUE(call);
  while (fallback_->requests() < 1) std::this_thread::yield();
  call->reset();
  while (router_->Shadows().at(0).cancelled < 1) std::this_thread::yield();
  EXPECT_EQ(router_->Shadows().at(0).running, 0);
}

TEST_F(RouterTest, NewChannelsAreAskedUntilTheyAreReady) {
  readiness_ = std::make_shared<Readiness>("");
  Start(Healthy);
  RouterConfig changed = config_;
  changed.routes[0].rollout = RolloutPolicy{};
  changed.routes[0].canary = {"fallback", "canary", 0};
  changed.routes[0].targets = {{"primary", "org/m", 0}};
  RouteConfig& split = changed.routes.emplace_back();
  split.model = "split";
  split.balance = Balance::kWeighted;
  split.sticky = true;
  split.targets = {{"primary", "a", 0}, {"fallback", "b", 0}};
  ASSERT_TRUE(router_->Reconfigure(changed));
  const auto report = [&](Channel channel) {
    return readiness_->Report().at(static_cast<std::size_t>(channel));
  };
  const Nanos patience = net::MonotonicNow() + std::chrono::seconds(20);
  while ((report(Channel::kCanary).events < 1 || report(Channel::kAb).events < 2) &&
         net::MonotonicNow() < patience) {
    std::this_thread::yield();
  }
  EXPECT_EQ(report(Channel::kCanary).met, 1u);
  EXPECT_EQ(report(Channel::kCanary).last.at(0).what, "m at fallback");
  EXPECT_EQ(report(Channel::kAb).met, 2u);
  ASSERT_TRUE(router_->Reconfigure(changed));
  EXPECT_TRUE(Complete(*Ask(false)));
  EXPECT_EQ(report(Channel::kCanary).events, 1u) << "what did not change is not asked again";
}

TEST(ProbeJudge, TurnsAfterResultsInARow) {
  ProbeJudge judge(/*down_after=*/2, /*up_after=*/3);
  EXPECT_FALSE(judge.OnResult(false));
  EXPECT_FALSE(judge.OnResult(true)) << "the row begins anew";
  EXPECT_FALSE(judge.OnResult(false));
  EXPECT_TRUE(judge.OnResult(false));
  EXPECT_TRUE(judge.down());
  EXPECT_FALSE(judge.OnResult(true));
  EXPECT_FALSE(judge.OnResult(true));
  EXPECT_TRUE(judge.OnResult(true));
  EXPECT_FALSE(judge.down());
}

TEST_F(RouterTest, S01_RateLimitWithRetryAfterIsWaitedFor) {
  Start([](net::RawConnection& c, int n) {
    // 2 scenario seconds; the header's unit is real time.
    return n == 0 ? Status(c, 429, "{}", fmt::format("Retry-After: {}\r\n", ToSeconds(2 * kSecond)))
                  : Answer(c);
  });
  EXPECT_TRUE(Complete(*Ask(false)));
  EXPECT_EQ(primary_->requests(), 2);
  EXPECT_GE(primary_->Gap(0, 1), 1.8);
}

TEST_F(RouterTest, S02_EndlessRateLimitFallsBack) {
  Start([](net::RawConnection& c, int) { return Status(c, 429, "{}"); });
  EXPECT_TRUE(Complete(*Ask(false)));
  EXPECT_LE(primary_->requests(), 4);
  EXPECT_EQ(fallback_->requests(), 1);
  EXPECT_LT(seconds_, 40);
  EXPECT_FALSE(Stats(0).breaker_open) << "4xx never trip the breaker";
}

TEST_F(RouterTest, S03_OneServerErrorIsRetriedOnTheSame) {
  Start([](net::RawConnection& c, int n) { return n == 0 ? Status(c, 500, "{}") : Answer(c); });
  EXPECT_TRUE(Complete(*Ask(true)));
  EXPECT_EQ(primary_->requests(), 2);
  EXPECT_EQ(fallback_->requests(), 0);
}

TEST_F(RouterTest, S04_UnavailableFallsBackAfterFewAttempts) {
  Start([](net::RawConnection& c, int) { return Status(c, 503, "{}"); });
  EXPECT_TRUE(Complete(*Ask(true)));
  EXPECT_LE(primary_->requests(), 6);
}

TEST_F(RouterTest, S05_ResetBeforeAnyByteIsRetried) {
  Start([](net::RawConnection& c, int n) {
    if (n > 0) return Answer(c);
    c.Reset();
    return false;
  });
  EXPECT_TRUE(Complete(*Ask(true)));
}

TEST_F(RouterTest, S06_ASilentServerIsLeftAndNotAskedAgain) {
  Start([](net::RawConnection& c, int) {
    c.WaitForClose();
    return false;
  });
  EXPECT_TRUE(Complete(*Ask(true)));
  EXPECT_EQ(primary_->requests(), 1);
  EXPECT_LE(seconds_, 100);
}

TEST_F(RouterTest, S07_ALateFirstTokenFailsOver) {
  Start([](net::RawConnection& c, int) {
    Head(c);
    c.WaitForClose();  // would send its first token after 20 s
    return false;
  });
  EXPECT_TRUE(Complete(*Ask(true)));
  EXPECT_LE(seconds_, 15);
  EXPECT_EQ(primary_->requests(), 1);
}

TEST_F(RouterTest, S08_ACutStreamIsAnErrorOrStartsOver) {
  const auto cut = [](net::RawConnection& c, int) {
    Head(c);
    Tokens(c, 0, 40);
    return false;
  };
  Start(cut);
  auto stream = Ask(true);
  ASSERT_TRUE(stream->error);
  EXPECT_EQ(stream->error->code, api::kStreamInterrupted);
  auto whole = Ask(false);
  EXPECT_TRUE(Complete(*whole)) << "nothing was sent yet, so another can start over";
  EXPECT_EQ(whole->answered_by, "big");
}

TEST_F(RouterTest, S09_AStallEndsInTime) {
  Start([](net::RawConnection& c, int n) {
    if (n > 0) return Answer(c);
    Head(c);
    Tokens(c, 0, 20);
    c.WaitForClose();
    return false;
  });
  auto sink = Ask(true);
  EXPECT_TRUE(Honest(*sink));
  EXPECT_LE(seconds_, 45);
  EXPECT_TRUE(Complete(*Ask(true))) << "healthy afterwards";
}

TEST_F(RouterTest, S10_ABrokenEventIsNotSkipped) {
  Start([](net::RawConnection& c, int n) {
    if (n > 0) return Answer(c);
    Head(c);
    Tokens(c, 0, 9);
    Event(c, R"({"choices":[{"delta":{"content":"t9)");
    Tokens(c, 10, kAnswerTokens);
    Finish(c);
    return End(c);
  });
  auto sink = Ask(true);
  EXPECT_TRUE(sink->error);
  EXPECT_TRUE(Complete(*Ask(true)));
}

TEST_F(RouterTest, S11_AStreamWithoutDoneIsComplete) {
  for (const bool keeps_open : {false, true}) {
    Start([&](net::RawConnection& c, int) {
      Head(c);
      Tokens(c, 0, kAnswerTokens);
      Finish(c);
      if (keeps_open) {
        c.WaitForClose();
        return false;
      }
      return c.Write("0\r\n\r\n");
    });
    auto sink = Ask(true);
    EXPECT_TRUE(Complete(*sink));
    EXPECT_EQ(sink->usage.completion_tokens, kAnswerTokens) << "counted when not told";
    EXPECT_LE(seconds_, 8);
  }
}

TEST_F(RouterTest, S12_TooLongAPromptGoesToMoreContext) {
  Start([](net::RawConnection& c, int) { return Status(c, 400, kContextError); });
  auto sink = Ask(true);
  EXPECT_TRUE(Complete(*sink));
  EXPECT_EQ(sink->answered_by, "big");
  EXPECT_EQ(primary_->requests(), 1);
}

TEST_F(RouterTest, S12_TooLongForAllIsSaid) {
  Start([](net::RawConnection& c, int) { return Status(c, 400, kContextError); },
        [](net::RawConnection& c, int) { return Status(c, 400, kContextError); });
  auto sink = Ask(true);
  ASSERT_TRUE(sink->error);
  EXPECT_EQ(sink->error->code, "context_length_exceeded");
}

TEST_F(RouterTest, S13_ARefusalIsPassedOnOnce) {
  Start([](net::RawConnection& c, int) { return Status(c, 400, kPolicyError); });
  auto sink = Ask(true);
  ASSERT_TRUE(sink->error);
  EXPECT_EQ(sink->error->code, "content_policy_violation");
  EXPECT_THAT(sink->error->message, HasSubstr("not that topic"));
  EXPECT_EQ(api::HttpStatus(*sink->error), 400);
  EXPECT_EQ(primary_->requests(), 1);
  EXPECT_EQ(fallback_->requests(), 0);
}

TEST_F(RouterTest, S14_ACutStreamNeverShowsTheFallbacksRefusal) {
  const auto cut = [](net::RawConnection& c, int) {
    Head(c);
    Tokens(c, 0, 40);
    return false;
  };
  Start(cut, [](net::RawConnection& c, int) {
    // Rejects a conversation that ends with the assistant's beginning.
    return Status(c, 400, R"({"error":{"message":"prefill not supported","code":null}})");
  });
  auto sink = Ask(true);
  ASSERT_TRUE(sink->error);
  EXPECT_EQ(sink->error->message.find("prefill"), std::string::npos);
  EXPECT_EQ(sink->error->code, api::kStreamInterrupted);
}

TEST_F(RouterTest, S15_AnOutageIsServedByTheFallbackAndEnds) {
  std::atomic<bool> down{true};
  Start([&](net::RawConnection& c, int) { return down.load() ? Status(c, 503, "{}") : Answer(c); });
  for (int i = 0; i < 10; ++i) {
    auto sink = Ask(true);
    EXPECT_TRUE(Complete(*sink)) << i;
    EXPECT_EQ(sink->answered_by, "big");
  }
  EXPECT_TRUE(Stats(0).breaker_open);
  EXPECT_LE(primary_->requests(), 12) << "the breaker spares it";
  down = false;
  const Nanos recovered = net::MonotonicNow();
  while (Ask(true)->answered_by != "m") {
    ASSERT_LE(ToSeconds(net::MonotonicNow() - recovered) / ToSeconds(kSecond), 30);
  }
  EXPECT_FALSE(Stats(0).breaker_open);
}

TEST_F(RouterTest, S16_TheFallbackNamesItself) {
  Start([](net::RawConnection& c, int) { return Status(c, 503, "{}"); });
  EXPECT_EQ(Ask(true)->answered_by, "big");
  auto sink = Ask(false);
  EXPECT_EQ(sink->answered_by, "big");
  EXPECT_EQ(sink->usage.completion_tokens, 60) << "failed attempts are not billed";
  EXPECT_LE(primary_->requests(), 6);
}

TEST_F(RouterTest, AClientThatLeavesCancelsAtTheUpstream) {
  std::atomic<bool> seen{false};
  Start([&](net::RawConnection& c, int) {
    Head(c);
    Tokens(c, 0, 1);
    c.WaitForClose();
    seen = true;
    return false;
  });
  auto sink = std::make_shared<Collected>();
  auto call = router_->Chat(Request(true), sink);
  while (primary_->requests() == 0) std::this_thread::yield();
  call->reset();
  const auto deadline = net::MonotonicNow() + std::chrono::seconds(10);
  while (!seen && net::MonotonicNow() < deadline) std::this_thread::yield();
  EXPECT_TRUE(seen);
  EXPECT_EQ(Stats(0).running, 0);
}

TEST_F(RouterTest, ServersDifferButAnswersDoNot) {
  Start([](net::RawConnection& c, int n) {
    if (n == 0) return Status(c, 400, R"({"error":{"message":"unknown field stream_options"}})");
    Head(c);
    c.Write("10\r\n: keep-alive\r\n\r\n\r\n");
    Event(c, R"({"choices":[{"index":0,"delta":{"role":null,"content":null}}],"usage":null})",
          "\r\n\r\n");
    for (int i = 0; i < kAnswerTokens; ++i) {
      Event(c, fmt::format(R"({{"choices":[{{"delta":{{"content":"t{} "}}}}]}})", i), "\r\n\r\n");
    }
    Event(c, R"({"choices":[{"delta":{"content":""},"finish_reason":"stop"}]})", "\r\n\r\n");
    return End(c);
  });
  EXPECT_TRUE(Complete(*Ask(true)));
  EXPECT_EQ(primary_->requests(), 2);
  EXPECT_EQ(primary_->last_request().find("stream_options"), std::string::npos);
  EXPECT_EQ(fallback_->requests(), 0);
}

TEST_F(RouterTest, AWholeAnswerInsteadOfAStreamIsTaken) {
  Start([](net::RawConnection& c, int) {
    return Status(c, 200,
                  fmt::format(R"({{"choices":[{{"index":0,"message":{{"role":"assistant",)"
                              R"("content":"{}"}},"finish_reason":"stop"}}],)"
                              R"("usage":{{"prompt_tokens":1,"completion_tokens":60}}}})",
                              Whole()));
  });
  EXPECT_TRUE(Complete(*Ask(true)));
}

TEST_F(RouterTest, UnknownModelsAndBrokenRoutesAreNamed) {
  Start(Healthy);
  const auto call = router_->Chat(Request(true, "other"), std::make_shared<Collected>());
  ASSERT_FALSE(call);
  EXPECT_EQ(call.error().code, api::kModelNotFound);
  EXPECT_TRUE(router_->Chat(Request(true, "alias"), std::make_shared<Collected>()));
  RouterConfig config;
  config.routes = {{"m", {}, {{"nowhere", "x", 0}}}};
  EXPECT_THAT(Router::Create(config).error().message, HasSubstr("'nowhere'"));
  config.routes = {{"m", {}, {}}};
  EXPECT_THAT(Router::Create(config).error().message, HasSubstr("no targets"));
}

// Several servers behind one model, each naming itself.
class BalanceTest : public RouterTest {
 protected:
  void StartMany(int count, const std::function<void(RouterConfig&)>& shape,
                 const FakeServer::Script& script = Healthy) {
    RouterConfig config;
    config.retry.unit = kSecond;
    RouteConfig& route = config.routes.emplace_back();
    route.model = "m";
    for (int i = 0; i < count; ++i) {
      servers_.push_back(std::make_unique<FakeServer>(script));
      const std::string name = "s" + std::to_string(i);
      UpstreamConfig& upstream = config.upstreams.emplace_back();
      upstream.remote = Remote(name.c_str(), *servers_.back());
      route.targets.push_back({name, "m", 0});
    }
    shape(config);
    config_ = config;
    auto router = Router::Create(config);
    ASSERT_TRUE(router) << router.error().message;
    router_ = *router;
  }
  std::shared_ptr<Collected> AskAs(const std::function<void(api::ChatRequest&)>& shape) {
    api::ChatRequest request = Request(true);
    shape(request);
    auto sink = std::make_shared<Collected>();
    auto call = router_->Chat(std::move(request), sink);
    EXPECT_TRUE(sink->Wait()) << "hangs";
    return sink;
  }
  std::vector<int> Requests() const {
    std::vector<int> counts;
    for (const auto& server : servers_) counts.push_back(server->requests());
    return counts;
  }

  RouterConfig config_;
  std::vector<std::unique_ptr<FakeServer>> servers_;
};

TEST_F(BalanceTest, TheBatchTierHasItsOwnTargetAndTheOthersAsAWayOut) {
  StartMany(2, [](RouterConfig& config) {
    config.routes[0].targets[0].batch = false;
    config.routes[0].targets[1].interactive = false;
  });
  AskAs([](api::ChatRequest& request) { request.tier = api::Tier::kBatch; });
  EXPECT_EQ(Requests(), (std::vector<int>{0, 1}));
  AskAs([](api::ChatRequest&) {});
  EXPECT_EQ(Requests(), (std::vector<int>{1, 1}));
}

TEST_F(BalanceTest, AStickyUserStays) {
  StartMany(3, [](RouterConfig& config) {
    config.routes[0].balance = Balance::kWeighted;
    config.routes[0].sticky = true;
  });
  for (int i = 0; i < 6; ++i) AskAs([](api::ChatRequest& request) { request.user = "ada"; });
  EXPECT_THAT(Requests(), ::testing::UnorderedElementsAre(0, 0, 6));
}

TEST_F(BalanceTest, TheSamePrefixGoesToTheSameServer) {
  StartMany(3, [](RouterConfig& config) { config.routes[0].balance = Balance::kPrefix; });
  const std::string system(4096, 's');
  for (int i = 0; i < 6; ++i) {
    AskAs([&](api::ChatRequest& request) {
      request.messages_json = "[" + system + std::to_string(i) + "]";
    });
  }
  EXPECT_THAT(Requests(), ::testing::UnorderedElementsAre(0, 0, 6));
}

TEST_F(BalanceTest, OutstandingTokensSteerAndAreGivenBack) {
  std::atomic<bool> go{false};
  StartMany(
      2, [](RouterConfig& config) { config.routes[0].balance = Balance::kLeastTokens; },
      [&](net::RawConnection& c, int) {
        while (!go.load()) std::this_thread::yield();
        return Answer(c);
      });
  std::vector<std::shared_ptr<Collected>> sinks;
  std::vector<std::unique_ptr<ChatCall>> calls;
  const auto ask = [&](int max_tokens) {
    api::ChatRequest request = Request(true);
    request.max_tokens = max_tokens;
    sinks.push_back(std::make_shared<Collected>());
    calls.push_back(*router_->Chat(std::move(request), sinks.back()));
    while (Requests()[0] + Requests()[1] < static_cast<int>(sinks.size())) {
      std::this_thread::yield();
    }
  };
  ask(1000);  // a long one, then three short ones beside it
  for (int i = 0; i < 3; ++i) ask(100);
  EXPECT_THAT(Requests(), ::testing::UnorderedElementsAre(1, 3));
  EXPECT_GT(Stats(0).outstanding_tokens + Stats(1).outstanding_tokens, 1300);
  go = true;
  for (const auto& sink : sinks) EXPECT_TRUE(sink->Wait());
  calls.clear();
  const auto settled = [&] {
    return Stats(0).outstanding_tokens == 0 && Stats(1).outstanding_tokens == 0;
  };
  const Nanos deadline = net::MonotonicNow() + std::chrono::seconds(10);
  while (!settled() && net::MonotonicNow() < deadline) std::this_thread::yield();
  EXPECT_TRUE(settled());
}

TEST_F(BalanceTest, WaitsForRoomThenIsServedOrTurnedAway) {
  std::atomic<bool> go{false};
  StartMany(
      1,
      [](RouterConfig& config) {
        config.upstreams[0].max_concurrent = 1;
        config.routes[0].queue.interactive = {1, 100 * kSecond};
        config.routes[0].queue.batch = {1, kSecond};
      },
      [&](net::RawConnection& c, int) {
        while (!go.load()) std::this_thread::yield();
        return Answer(c);
      });
  const auto ask = [&](std::shared_ptr<Collected>& sink, api::Tier tier) {
    api::ChatRequest request = Request(true);
    request.tier = tier;
    sink = std::make_shared<Collected>();
    return *router_->Chat(std::move(request), sink);
  };
  std::shared_ptr<Collected> running, waiting, refused, late;
  const auto first = ask(running, api::Tier::kInteractive);
  const auto second = ask(waiting, api::Tier::kInteractive);
  const auto third = ask(refused, api::Tier::kInteractive);
  const auto fourth = ask(late, api::Tier::kBatch);
  ASSERT_TRUE(refused->Wait());
  ASSERT_TRUE(refused->error);
  EXPECT_EQ(refused->error->code, api::kOverloaded);
  EXPECT_EQ(api::HttpStatus(*refused->error), 503);
  EXPECT_GT(refused->retry_after, Nanos{});
  ASSERT_TRUE(late->Wait());
  EXPECT_THAT(late->error->message, HasSubstr("time a request may wait"));
  EXPECT_EQ(router_->Routes().at(0).waiting_interactive, 1);
  EXPECT_EQ(router_->Routes().at(0).refused, 1u);
  EXPECT_EQ(router_->Routes().at(0).timed_out, 1u);
  go = true;
  ASSERT_TRUE(waiting->Wait());
  EXPECT_TRUE(Complete(*waiting));
  EXPECT_TRUE(running->Wait());
  EXPECT_EQ(router_->Routes().at(0).waiting_interactive, 0);
}

TEST_F(BalanceTest, ABrokenCanaryIsRolledBackAndCostsNobodyAnAnswer) {
  servers_.push_back(std::make_unique<FakeServer>(Healthy));
  servers_.push_back(std::make_unique<FakeServer>(
      [](net::RawConnection& c, int) { return Status(c, 500, "{}"); }));
  RouterConfig config;
  config.retry.attempts = 1;
  config.breaker.threshold = 1000;
  config.upstreams = {{Remote("old", *servers_[0])}, {Remote("new", *servers_[1])}};
  RouteConfig& route = config.routes.emplace_back();
  route.model = "m";
  route.targets = {{"old", "m", 0}};
  route.canary = {"new", "m2", 0};
  route.rollout.emplace();
  route.rollout->share = 0.5;
  route.rollout->min_samples = 5;
  auto router = Router::Create(config);
  ASSERT_TRUE(router) << router.error().message;
  router_ = *router;
  int asked = 0;
  while (router_->Rollouts().at(0)->state() == RolloutState::kRunning && asked < 400) {
    auto sink = AskAs([&](api::ChatRequest& request) { request.id = std::to_string(asked); });
    EXPECT_TRUE(Complete(*sink)) << "the former target is the way out";
    ++asked;
  }
  EXPECT_EQ(router_->Rollouts().at(0)->state(), RolloutState::kRolledBack);
  EXPECT_GT(servers_[1]->requests(), 5);
  const int tried = servers_[1]->requests();
  for (int i = 0; i < 10; ++i) AskAs([](api::ChatRequest&) {});
  EXPECT_EQ(servers_[1]->requests(), tried) << "nothing goes there any more";

  ASSERT_TRUE(router_->Reconfigure(config));
  EXPECT_EQ(router_->Rollouts().at(0)->state(), RolloutState::kRolledBack)
      << "an unchanged roll-out goes on where it was";
  config.routes[0].rollout->share = 0.25;
  ASSERT_TRUE(router_->Reconfigure(config));
  EXPECT_EQ(router_->Rollouts().at(0)->state(), RolloutState::kRunning);
}

TEST_F(BalanceTest, ANewConfigurationTakesOverWhileAnswersGoOn) {
  std::atomic<bool> go{false};
  StartMany(
      2, [](RouterConfig& config) { config.routes[0].targets.pop_back(); },
      [&](net::RawConnection& c, int) {
        Head(c);
        Tokens(c, 0, 1);
        while (!go.load()) std::this_thread::yield();
        Tokens(c, 1, kAnswerTokens);
        Finish(c);
        Usage(c);
        return End(c);
      });
  auto old = std::make_shared<Collected>();
  auto call = router_->Chat(Request(true), old);
  while (servers_[0]->requests() == 0) std::this_thread::yield();
  RouterConfig broken = config_;
  broken.routes[0].targets[0].upstream = "nowhere";
  EXPECT_FALSE(router_->Reconfigure(broken));
  EXPECT_EQ(router_->Models().at(0).id, "m") << "a broken one changes nothing";
  RouterConfig next = config_;
  next.routes[0].model = "n";
  next.routes[0].targets[0].upstream = "s1";
  next.upstreams.erase(next.upstreams.begin());
  ASSERT_TRUE(router_->Reconfigure(next));
  EXPECT_FALSE(router_->Chat(Request(true), std::make_shared<Collected>()));
  go = true;
  ASSERT_TRUE(old->Wait());
  EXPECT_TRUE(Complete(*old)) << "what runs stays with what it began with";
  auto sink = std::make_shared<Collected>();
  auto again = router_->Chat(Request(true, "n"), sink);
  ASSERT_TRUE(sink->Wait());
  EXPECT_TRUE(Complete(*sink));
  EXPECT_EQ(servers_[1]->requests(), 1);
}

TEST(CircuitBreaker, OpensProbesAndCloses) {
  CircuitBreaker breaker({2, std::chrono::seconds(10)});
  const Nanos t{};
  EXPECT_TRUE(breaker.Allow(t));
  breaker.OnFailure(t);
  breaker.OnSuccess();
  breaker.OnFailure(t);
  EXPECT_TRUE(breaker.Allow(t)) << "failures in a row count, not failures";
  breaker.OnFailure(t);
  EXPECT_FALSE(breaker.Allow(t + std::chrono::seconds(9)));
  EXPECT_TRUE(breaker.Allow(t + std::chrono::seconds(10)));
  EXPECT_FALSE(breaker.Allow(t + std::chrono::seconds(10))) << "one probe at a time";
  breaker.OnFailure(t + std::chrono::seconds(11));
  EXPECT_FALSE(breaker.Allow(t + std::chrono::seconds(20)));
  EXPECT_TRUE(breaker.Allow(t + std::chrono::seconds(21)));
  breaker.OnNoVerdict();
  EXPECT_TRUE(breaker.Allow(t + std::chrono::seconds(21)));
  breaker.OnSuccess();
  EXPECT_TRUE(breaker.Allow(t));
  EXPECT_FALSE(breaker.open());
}

TEST(RetryPolicy, DecidesByTheKindOfFailure) {
  const RetryPolicy policy;
  const auto decide = [&](int status, int attempts, std::optional<Nanos> after = std::nullopt) {
    Failure failure;
    failure.status = status;
    failure.error.kind = ErrorKind::kNetwork;
    failure.retry_after = after;
    return Decide(failure, attempts, 0.0, policy);
  };
  EXPECT_EQ(decide(500, 1).action, Decision::kRetrySame);
  EXPECT_NEAR(ToSeconds(decide(500, 1).delay), 1.2, 1e-6);
  EXPECT_NEAR(ToSeconds(decide(0, 2).delay), 1.44, 1e-6);
  EXPECT_EQ(decide(503, 3).action, Decision::kNextUpstream);
  EXPECT_EQ(decide(400, 1).action, Decision::kGiveUp);
  EXPECT_EQ(decide(422, 1).action, Decision::kGiveUp);
  EXPECT_EQ(decide(401, 1).action, Decision::kNextUpstream);
  EXPECT_EQ(decide(429, 1, std::chrono::seconds(3)).delay, std::chrono::seconds(3));
  EXPECT_EQ(decide(429, 1, std::chrono::seconds(30)).action, Decision::kNextUpstream);
  RetryBudget budget(0.5, 1);
  EXPECT_TRUE(budget.Spend());
  EXPECT_FALSE(budget.Spend()) << "an outage is not answered by a storm";
  budget.OnRequest();
  budget.OnRequest();
  EXPECT_TRUE(budget.Spend());
}

}  // namespace
}  // namespace tare::gateway
