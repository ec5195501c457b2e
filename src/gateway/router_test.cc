// The router against servers that misbehave on purpose. The scenarios S01 to S16 are those of
// failoverbench's catalogue (github.com/failoverbench/failoverbench, methodology v0.1), in time
// scaled so that a second of theirs is a few milliseconds here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "api/wire_error.h"
#include "gateway/router_fixture.h"
#include "net/test_gzip.h"

namespace tare::gateway {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

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

// "Accept-Encoding: identity" notwithstanding.
TEST_F(RouterTest, AnAnswerCompressedUnaskedIsUnpackedAndACutOneIsNoSuccess) {
  std::string text;
  for (int i = 0; i < kAnswerTokens; ++i) {
    text += fmt::format(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"t{} \"}}}}]}}\n\n", i);
  }
  text +=
      "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: "
      "[DONE]\n\n";
  const std::string packed = net::Gzipped({text});
  const auto script = [&](const std::string& body, const char* encoding) {
    return [body, encoding](net::RawConnection& connection, int) {
      return connection.Write(
          fmt::format("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: "
                      "{}\r\nContent-Length: {}\r\n\r\n{}",
                      encoding, body.size(), body));
    };
  };
  const auto refuse = [](net::RawConnection& connection, int) {
    return Status(connection, 400, kPolicyError);
  };
  Start(script(packed, "gzip"), refuse);
  EXPECT_TRUE(Complete(*Ask(true)));
  EXPECT_THAT(primary_->last_request(), HasSubstr("Accept-Encoding: identity\r\n"));
  // The HTTP message is whole, what is in it is not.
  Start(script(packed.substr(0, packed.size() / 2), "gzip"), refuse);
  EXPECT_TRUE(Ask(true)->error);
  Start(script(text, "br"));
  EXPECT_TRUE(Complete(*Ask(true))) << "the fallback answers";
  EXPECT_EQ(fallback_->requests(), 1);
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
