#include "gateway/gateway_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace tare::gateway {
namespace {

using ::testing::HasSubstr;

constexpr const char* kWhole = R"(
upstreams:
  vllm:
    url: http://127.0.0.1:9000/v1
    api_key_env: TARE_TEST_KEY
    max_concurrent: 64
    weight: 3
    first_token_timeout: 8s
    assistant_prefix: true
    health: {generate: org/chat, interval: 4s, down_after: 2}
    metrics: {interval: 3s}
models:
  chat:
    aliases: [gpt-4o, default]
    balance: weighted
    sticky: true
    price: {input: 0.15, output: 0.6}
    continue_cut_streams: true
    queue: {batch: {limit: 7, shed: {requests_per_s: 18, within: 3200ms}}}
    shadow: {target: {upstream: vllm, model: org/next}, share: 5%, max_concurrent: 3}
    targets:
      - upstream: vllm
        model: org/chat
        max_model_len: 8192
        tiers: [batch]
      - upstream: local
        weight: 2
queue:
  interactive: {limit: 9, timeout: 2s}
  ageing: 1s
  scale_out: {depth: 3, after: 10s}
tenants:
  search: {requests_per_minute: 600, tokens_per_minute: 100000, usd_per_month: 50}
keys:
  - name: web
    tenant: search
    models: [gpt-4o]
    key_env: TARE_TEST_KEY
  - name: night
    tenant: search
    tier: batch
    sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b
admin: {port: 9001, key_env: TARE_TEST_KEY}
access_log: /var/log/tare/access.log
retry:
  attempts: 2
  jitter: 20%
breaker:
  threshold: 3
  open_for: 5s
)";

TEST(GatewayConfig, ReadsEverything) {
  ::setenv("TARE_TEST_KEY", "sk-1", 1);
  auto config = ParseGatewayConfig(kWhole, "tare.yaml");
  ASSERT_TRUE(config) << config.error().message;
  const UpstreamConfig& vllm = config->router.upstreams.at(0);
  EXPECT_EQ(vllm.remote.name, "vllm");
  EXPECT_EQ(vllm.remote.url.port, 9000);
  EXPECT_EQ(vllm.remote.api_key, "sk-1");
  EXPECT_EQ(vllm.max_concurrent, 64);
  EXPECT_EQ(vllm.remote.first_token_timeout, std::chrono::seconds(8));
  EXPECT_EQ(vllm.probe.generate, "org/chat");
  EXPECT_EQ(vllm.probe.path, "");
  EXPECT_EQ(vllm.probe.interval, std::chrono::seconds(4));
  EXPECT_EQ(vllm.probe.down_after, 2);
  EXPECT_EQ(vllm.scrape.path, "/metrics");
  EXPECT_EQ(vllm.scrape.stale_after, std::chrono::seconds(9)) << "three intervals";
  const RouteConfig& chat = config->router.routes.at(0);
  EXPECT_EQ(chat.aliases, (std::vector<std::string>{"gpt-4o", "default"}));
  EXPECT_EQ(chat.targets.at(0).model, "org/chat");
  EXPECT_EQ(config->router.retry.attempts, 2);
  EXPECT_DOUBLE_EQ(config->router.retry.jitter, 0.2);
  EXPECT_EQ(config->router.breaker.threshold, 3);
  EXPECT_TRUE(config->uses_local);
  EXPECT_EQ(chat.balance, Balance::kWeighted);
  EXPECT_TRUE(chat.sticky);
  EXPECT_EQ(vllm.weight, 3);
  EXPECT_FALSE(chat.targets.at(0).interactive);
  EXPECT_TRUE(chat.targets.at(0).batch);
  EXPECT_EQ(chat.targets.at(1).weight, 2);
  EXPECT_EQ(chat.queue.interactive.limit, 9);
  EXPECT_EQ(chat.queue.batch.limit, 7) << "a model's own limits";
  EXPECT_EQ(chat.queue.batch.shed.requests_per_s, 18);
  EXPECT_EQ(chat.queue.batch.shed.within, std::chrono::milliseconds(3200));
  EXPECT_TRUE(chat.continue_cut_streams);
  EXPECT_TRUE(vllm.assistant_prefix);
  ASSERT_TRUE(chat.shadow);
  EXPECT_EQ(chat.shadow->share, 0.05);
  EXPECT_EQ(chat.shadow->max_concurrent, 3);
  EXPECT_EQ(chat.shadow_target.model, "org/next");
  EXPECT_EQ(chat.queue.scale_out_after, std::chrono::seconds(10));
  const Access& access = config->access;
  EXPECT_EQ(access.LimitsOf("search").nano_usd_per_month, 50'000'000'000);
  EXPECT_EQ(access.PriceOf("gpt-4o").Of({1000, 100, 0}), 150'000 + 60'000);
  ASSERT_NE(access.Find("sk-1"), nullptr);
  EXPECT_TRUE(access.Find("sk-1")->MayUse("gpt-4o"));
  EXPECT_FALSE(access.Find("sk-1")->MayUse("chat"));
  ASSERT_NE(access.Find("secret"), nullptr);
  EXPECT_TRUE(access.Find("secret")->batch);
  EXPECT_EQ(access.Find("sk-2"), nullptr);
  EXPECT_TRUE(config->admin.on);
  EXPECT_EQ(config->admin.port, 9001);
  EXPECT_EQ(config->access_log, "/var/log/tare/access.log");

  AddLocal(*config, "local", "smol", 2048, nullptr);
  EXPECT_EQ(config->router.routes.size(), 1u);
  EXPECT_EQ(config->router.routes.at(0).targets.at(1).model, "smol");
  EXPECT_EQ(config->router.routes.at(0).targets.at(1).max_model_len, 2048);
}

TEST(GatewayConfig, TheLocalModelHasARouteByDefault) {
  auto config = ParseGatewayConfig(
      "upstreams: {a: {url: 'http://h:1'}}\nmodels: {m: {targets: [{upstream: a}]}}\n", "x");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->router.routes.at(0).targets.at(0).model, "m") << "its own name by default";
  AddLocal(*config, "local", "smol", 2048, nullptr);
  ASSERT_EQ(config->router.routes.size(), 2u);
  EXPECT_EQ(config->router.routes.at(1).model, "smol");
}

constexpr const char* kPlan = R"(# Routing plan
schema: tare.routing/1
plan: "two models"
made_at: "2026-11-30T12:00:00Z"
answer: pick
tiers:
  interactive: {upstream: "fast", because: "lowest p90"}
  batch: {upstream: "cheap", because: "lowest cost"}
upstreams:
  "fast": {kind: local, model: "m.gguf", dtype: int4, threads: 2, flags: ["--max-num-seqs", "8"], measured_requests_per_s: 12.5}
  "cheap": {kind: remote, url: "http://127.0.0.1:9000", model: "org/m", measured_requests_per_s: 2.5}
)";

TEST(GatewayConfig, ReadsARoutingPlan) {
  auto config = ParseGatewayConfig(kPlan, "routing.yaml");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->locals.size(), 1u);
  EXPECT_EQ(config->locals[0].upstream, "fast");
  EXPECT_EQ(config->locals[0].model, "m.gguf");
  EXPECT_EQ(config->locals[0].flags,
            (std::vector<std::string>{"--dtype", "int4", "--threads", "2", "--max-num-seqs", "8"}));
  AddLocal(*config, "fast", "fast", 2048, nullptr);
  ASSERT_EQ(config->router.upstreams.size(), 2u);
  EXPECT_EQ(config->router.upstreams[0].weight, 12.5);
  const RouteConfig& plan = config->router.routes.at(0);
  EXPECT_EQ(plan.model, "two models");
  EXPECT_EQ(plan.aliases, std::vector<std::string>{"auto"});
  ASSERT_EQ(plan.targets.size(), 2u);
  EXPECT_EQ(plan.targets[0].upstream, "fast");
  EXPECT_EQ(plan.targets[0].model, "fast");
  EXPECT_TRUE(plan.targets[0].interactive);
  EXPECT_FALSE(plan.targets[0].batch);
  EXPECT_EQ(plan.targets[1].model, "org/m");
  EXPECT_TRUE(plan.targets[1].batch);
  EXPECT_EQ(config->router.routes.at(1).model, "fast") << "each has a route of its own";
  EXPECT_EQ(config->router.routes.at(2).model, "cheap");
  EXPECT_TRUE(config->warnings.empty());
}

TEST(GatewayConfig, APlansTierMayShareItsRequestsBetweenUnlikeDevices) {
  const auto config = ParseGatewayConfig(
      "schema: tare.routing/1\n"
      "plan: fleet\n"
      "tiers:\n"
      "  interactive: {upstreams: [big, small], shed: {requests_per_s: 18, within: 3.2s}}\n"
      "  batch: {upstream: small, shed: {requests_per_s: 4}}\n"
      "upstreams:\n"
      "  big: {url: 'http://h:1', weight: 3, measured_requests_per_s: 14}\n"
      "  small: {url: 'http://h:2', measured_requests_per_s: 4}\n",
      "routing.yaml");
  ASSERT_TRUE(config) << config.error().message;
  const RouteConfig& plan = config->router.routes.at(0);
  EXPECT_EQ(plan.balance, Balance::kLeastTokens);
  ASSERT_EQ(plan.targets.size(), 2u);
  EXPECT_FALSE(plan.targets[0].batch);
  EXPECT_TRUE(plan.targets[1].interactive && plan.targets[1].batch);
  EXPECT_EQ(config->router.upstreams[0].weight, 3) << "a weight goes before what was measured";
  EXPECT_EQ(config->router.upstreams[1].weight, 4);
  EXPECT_EQ(plan.queue.interactive.shed, (ShedOptions{18, std::chrono::milliseconds(3200)}));
  EXPECT_EQ(plan.queue.batch.shed, (ShedOptions{4, std::chrono::seconds(1)}));
  const auto both = ParseGatewayConfig(
      "schema: tare.routing/1\nplan: p\ntiers: {batch: {upstream: a, upstreams: [a, b]}}\n"
      "upstreams: {a: {url: 'http://h:1'}}\n",
      "routing.yaml");
  ASSERT_FALSE(both);
  EXPECT_THAT(both.error().message, HasSubstr("'upstream' or 'upstreams'"));
  EXPECT_THAT(both.error().message, HasSubstr("no upstream 'b'"));
}

TEST(GatewayConfig, ReadsARollout) {
  auto config = ParseGatewayConfig(
      "upstreams: {a: {url: 'http://h:1'}, b: {url: 'http://h:2'}}\n"
      "models:\n"
      "  m:\n"
      "    targets: [{upstream: a}]\n"
      "    rollout:\n"
      "      target: {upstream: b, model: m2}\n"
      "      share: 20%\n"
      "      alpha: 1%\n"
      "      min_samples: 50\n"
      "      max_duration: 2h\n"
      "      error_margin: 2%\n"
      "      ttft_p99: 10ms\n"
      "      feedback_gain: 5%\n",
      "tare.yaml");
  ASSERT_TRUE(config) << config.error().message;
  const RouteConfig& route = config->router.routes.at(0);
  ASSERT_TRUE(route.rollout);
  EXPECT_EQ(route.canary.model, "m2");
  EXPECT_DOUBLE_EQ(route.rollout->share, 0.2);
  EXPECT_EQ(route.rollout->ttft_p99, std::chrono::milliseconds(10));
  EXPECT_FALSE(route.rollout->e2e_p99);
  EXPECT_DOUBLE_EQ(*route.rollout->feedback_gain, 0.05);
}

struct Mistake {
  const char* text;
  const char* message;
};
class GatewayConfigMistake : public ::testing::TestWithParam<Mistake> {};
TEST_P(GatewayConfigMistake, IsNamed) {
  const auto config = ParseGatewayConfig(GetParam().text, "tare.yaml");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, HasSubstr(GetParam().message));
}
INSTANTIATE_TEST_SUITE_P(
    All, GatewayConfigMistake,
    ::testing::Values(
        Mistake{"upstreams: {}\n", "models"},
        Mistake{"models: {m: {targets: []}}\n", "at least one target"},
        Mistake{"models: {m: {targets: [{upstream: lokal}]}}\n", "did you mean 'local'"},
        Mistake{"upstreams: {local: {url: 'http://h'}}\nmodels: {m: {targets: [{upstream: "
                "local}]}}\n",
                "command line"},
        Mistake{"upstreams: {a: {url: 'ftp://h'}}\nmodels: {m: {targets: [{upstream: a}]}}\n",
                "upstreams.a.url"},
        Mistake{"upstreams: {a: {url: 'http://h', max_concurent: 1}}\nmodels: {m: {targets: "
                "[{upstream: a}]}}\n",
                "max_concurrent"},
        Mistake{"upstreams: {a: {url: 'http://h', api_key_env: TARE_TEST_UNSET}}\nmodels: {m: "
                "{targets: [{upstream: a}]}}\n",
                "TARE_TEST_UNSET"},
        Mistake{"upstreams: {a: {url: 'http://h', first_token_timeout: 5}}\nmodels: {m: {targets: "
                "[{upstream: a}]}}\n",
                "first_token_timeout"},
        Mistake{"upstreams: {a: {url: 'http://h', health: {path: health}}}\nmodels: {m: {targets: "
                "[{upstream: a}]}}\n",
                "begins with '/'"},
        Mistake{"upstreams: {a: {url: 'http://h', health: {path: /h, generate: m}}}\nmodels: {m: "
                "{targets: [{upstream: a}]}}\n",
                "give one"},
        Mistake{"upstreams: {a: {url: 'http://h', metrics: {interval: 9s, stale_after: 3s}}}\n"
                "models: {m: {targets: [{upstream: a}]}}\n",
                "at least the interval"},
        Mistake{"models: {m: {targets: [{upstream: local}]}}\n"
                "quota_store: 'postgresql://tare:secret@db/quotas'\n",
                "never written here"},
        Mistake{"models: {m: {sticky: true, targets: [{upstream: local}]}}\n", "sticky"},
        Mistake{"models: {m: {balance: fair, targets: [{upstream: local}]}}\n", "least_tokens"},
        Mistake{"models: {m: {targets: [{upstream: local, weight: 0}]}}\n", "more than 0"},
        Mistake{"models: {m: {targets: [{upstream: local, tiers: [slow]}]}}\n", "interactive"},
        Mistake{"models: {m: {targets: [{upstream: local}]}}\nkeys: []\n", "lock everybody out"},
        Mistake{"models: {m: {targets: [{upstream: local}]}}\nkeys: [{name: a}]\n", "sha256"},
        Mistake{"models: {m: {targets: [{upstream: local}]}}\nkeys: [{name: a, sha256: 12}]\n",
                "64 hex digits"},
        Mistake{"models: {m: {targets: [{upstream: local}]}}\ntenants: {search: {}}\nkeys: [{name: "
                "a, tenant: serch, key_file: /nonexistent}]\n",
                "did you mean 'search'"},
        Mistake{"models: {m: {targets: [{upstream: local}]}}\nkeys: [{name: a, key: sk-1}]\n",
                "unknown key 'key'"},
        Mistake{"models: {m: {targets: [{upstream: local}]}}\nadmin: {port: 1}\n",
                "key of its own"},
        Mistake{"schema: tare.routing/2\nplan: p\ntiers: {}\nupstreams: {}\n", "tare.routing/1"},
        Mistake{"schema: tare.routing/1\nplan: p\ntiers: {}\nupstreams: {}\n", "routes nothing"},
        Mistake{"schema: tare.routing/1\nplan: p\ntiers: {interactive: {upstream: b}}\n"
                "upstreams: {a: {kind: unknown}}\n",
                "say where that is"}));

}  // namespace
}  // namespace tare::gateway
