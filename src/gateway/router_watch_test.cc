// What the router does beside answering: connections kept, a thread shared, upstreams watched,
// copies sent, new channels asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "api/wire_error.h"
#include "gateway/router_fixture.h"
#include "net/http_server.h"
#include "net/raw_client.h"

namespace tare::gateway {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

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
  EXPECT_TRUE(Complete(*Ask(false)));
  EXPECT_EQ(fallback_->requests(), 1) << "others keep the primary busy";
  readable = false;
  WaitFor(*router_, [](const WatchStats& watch) { return watch.scrape_stale; });
  EXPECT_GT(Stats(0).watch.scrapes_failed, 0u);
  // Back to own counts, and going on: both are idle, so chance decides.
  for (int i = 0; i < 64 && Stats(0).successes == 0; ++i) EXPECT_TRUE(Complete(*Ask(false)));
  EXPECT_EQ(Stats(0).successes, 1u);
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

TEST_F(RouterTest, RequestsFasterThanTheModelAnswersAreTurnedAway) {
  shed_ = {0.001, std::chrono::seconds(0)};  // one in a thousand seconds
  Start(Healthy);
  EXPECT_TRUE(Complete(*Ask(false)));
  const auto refused = Ask(false);
  ASSERT_TRUE(refused->error);
  EXPECT_EQ(refused->error->code, api::kOverloaded);
  EXPECT_GT(refused->retry_after, std::chrono::seconds(900));
  EXPECT_EQ(primary_->requests(), 1);
  EXPECT_EQ(router_->Routes().at(0).shed, 1u);
}

TEST_F(RouterTest, ACutStreamGoesOnElsewhere) {
  continues_ = true;
  Start(
      [](net::RawConnection& c, int) {
        Head(c);
        Tokens(c, 0, 40);
        return false;
      },
      [](net::RawConnection& c, int) {
        Head(c);
        Tokens(c, 40, kAnswerTokens);
        Finish(c);
        Event(c, R"({"choices":[],"usage":{"prompt_tokens":49,"completion_tokens":20}})");
        return End(c);
      });
  auto sink = Ask(true);
  EXPECT_TRUE(Complete(*sink)) << (sink->error ? sink->error->message : sink->text);
  EXPECT_EQ(sink->answered_by, "m") << "the stream had begun";
  EXPECT_EQ(sink->usage.prompt_tokens, 9) << "what was written before is no part of the prompt";
  EXPECT_EQ(sink->usage.completion_tokens, 60);
  const std::string request = fallback_->last_request();
  EXPECT_THAT(request, HasSubstr(R"("continue_final_message":true)"));
  EXPECT_THAT(request, HasSubstr(R"({"role":"assistant","content":"t0 t1 )"));
  EXPECT_THAT(request, HasSubstr(R"(t39"}])")) << "without the blank at its end";
  EXPECT_THAT(request, HasSubstr(R"("custom":[1,2])"));
  EXPECT_EQ(Stats(1).continued, 1u);
  EXPECT_EQ(Stats(0).failures, 1u);
}

TEST_F(RouterTest, S14_AFallbackThatRefusesThePrefixIsNotHeardOf) {
  continues_ = true;
  Start(
      [](net::RawConnection& c, int) {
        Head(c);
        Tokens(c, 0, 40);
        return false;
      },
      [](net::RawConnection& c, int) {
        return Status(c, 400, R"({"error":{"message":"prefill is not supported"}})");
      });
  auto sink = Ask(true);
  ASSERT_TRUE(sink->error);
  EXPECT_EQ(sink->error->code, api::kStreamInterrupted);
  EXPECT_THAT(sink->error->message, ::testing::Not(HasSubstr("prefill")));
  EXPECT_EQ(fallback_->requests(), 1);
  EXPECT_EQ(Stats(1).continued, 0u);
}

TEST_F(RouterTest, ACutStreamWithoutAnotherTargetEndsInAnError) {
  continues_ = true;
  Start(
      [](net::RawConnection& c, int) {
        Head(c);
        Tokens(c, 0, 40);
        return false;
      },
      [](net::RawConnection& c, int n) {
        // Goes on a little, then is cut as well; it has had its try.
        Head(c);
        Tokens(c, 40, 45 + n);
        return false;
      });
  auto sink = Ask(true);
  ASSERT_TRUE(sink->error);
  EXPECT_EQ(sink->error->code, api::kStreamInterrupted);
  EXPECT_EQ(fallback_->requests(), 1);
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

}  // namespace
}  // namespace tare::gateway
