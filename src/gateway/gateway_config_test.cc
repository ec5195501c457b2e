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
    first_token_timeout: 8s
models:
  chat:
    aliases: [gpt-4o, default]
    targets:
      - upstream: vllm
        model: org/chat
        max_model_len: 8192
      - upstream: local
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
  const RouteConfig& chat = config->router.routes.at(0);
  EXPECT_EQ(chat.aliases, (std::vector<std::string>{"gpt-4o", "default"}));
  EXPECT_EQ(chat.targets.at(0).model, "org/chat");
  EXPECT_EQ(config->router.retry.attempts, 2);
  EXPECT_DOUBLE_EQ(config->router.retry.jitter, 0.2);
  EXPECT_EQ(config->router.breaker.threshold, 3);
  EXPECT_TRUE(config->uses_local);

  AddLocal(*config, "smol", 2048, nullptr);
  EXPECT_EQ(config->router.routes.size(), 1u);
  EXPECT_EQ(config->router.routes.at(0).targets.at(1).model, "smol");
  EXPECT_EQ(config->router.routes.at(0).targets.at(1).max_model_len, 2048);
}

TEST(GatewayConfig, TheLocalModelHasARouteByDefault) {
  auto config = ParseGatewayConfig(
      "upstreams: {a: {url: 'http://h:1'}}\nmodels: {m: {targets: [{upstream: a}]}}\n", "x");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->router.routes.at(0).targets.at(0).model, "m") << "its own name by default";
  AddLocal(*config, "smol", 2048, nullptr);
  ASSERT_EQ(config->router.routes.size(), 2u);
  EXPECT_EQ(config->router.routes.at(1).model, "smol");
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
                "first_token_timeout"}));

}  // namespace
}  // namespace tare::gateway
