// The routing plan as advise writes it, read as the gateway reads it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "advise/advise.h"
#include "advise/routing.h"
#include "advise/test_records.h"
#include "gateway/gateway_config.h"

namespace tare {
namespace {

using ::testing::HasSubstr;

// One candidate writes faster, the other answers sooner.
class TwoSpeeds final : public advise::Bench {
 public:
  double slow_e2e_s = 1;

  Result<std::optional<double>> Open(const advise::Candidate&, int) override { return 0.4; }
  Result<store::RunRecord> Measure(const advise::Candidate& candidate, const advise::LoadPlan&,
                                   double level, int round) override {
    const bool cheap = candidate.name == "cheap";
    advise::MadeUpRun made;
    made.id = fmt::format("{}-{}-{}", candidate.name, level, round);
    made.users = level;
    made.tokens_per_s = cheap ? 400 : 250;
    made.e2e_s = cheap ? slow_e2e_s : 0.3 * slow_e2e_s;
    made.seed = ++seed_;
    return advise::MakeRun(made);
  }
  Status Close(const advise::Candidate&) override { return {}; }
  Result<std::vector<store::RunRecord>> Stored(const advise::Candidate&) override {
    return std::vector<store::RunRecord>{};
  }

 private:
  std::uint64_t seed_ = 0;
};

class RoutingPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tare-plan-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
    std::ofstream(dir_ / "model.gguf") << "not read here";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Render(TwoSpeeds bench = {}, const std::string& more = "") {
    auto plan = advise::ParsePlan(
        "name: 'quick: or \"cheap\"'\n"
        "load: {users: [1], requests: 100, rounds: 2}\n"
        "service_levels: {e2e: {p90: 3s}}\n" +
            more +
            "\n"
            "price: 3.6/h\n"
            "candidates:\n"
            "  - {name: cheap, dtype: int4, threads: 2, flags: [--max-num-seqs, '16']}\n"
            "  - {name: quick, url: 'http://127.0.0.1:9000', model: org/quick}\n",
        "plan.yaml", {.model = dir_ / "model.gguf", .usd_per_hour = {}});
    EXPECT_TRUE(plan) << plan.error().message;
    const auto prices = advise::LoadPriceList("");
    const auto report = advise::Advise(
        *plan, *prices, bench,
        {.program = "tare", .tare_version = "1", .on_progress = {}, .cancelled = {}});
    EXPECT_TRUE(report) << report.error().message;
    return advise::RenderRouting(*report);
  }
  std::filesystem::path dir_;
};

TEST_F(RoutingPlanTest, LoadsAsItIs) {
  const std::string text = Render();
  const auto config = gateway::ParseGatewayConfig(text, "routing.yaml");
  ASSERT_TRUE(config) << config.error().message << "\n" << text;
  const gateway::RouteConfig& route = config->router.routes.at(0);
  EXPECT_EQ(route.model, "quick: or \"cheap\"");
  ASSERT_EQ(route.targets.size(), 2u) << text;
  for (const gateway::TargetConfig& target : route.targets) {
    EXPECT_EQ(target.interactive, target.upstream == "quick");
    EXPECT_EQ(target.batch, target.upstream == "cheap");
  }
  ASSERT_EQ(config->locals.size(), 1u);
  EXPECT_EQ(config->locals[0].upstream, "cheap");
  EXPECT_EQ(config->locals[0].model, (dir_ / "model.gguf").string());
  EXPECT_EQ(config->locals[0].flags, (std::vector<std::string>{"--dtype", "int4", "--threads", "2",
                                                               "--max-num-seqs", "16"}));
  for (const gateway::UpstreamConfig& upstream : config->router.upstreams) {
    EXPECT_NEAR(upstream.weight, upstream.remote.name == "cheap" ? 12.5 : 7.8, 0.5);
  }
  // One upstream a tier: the order decides, and each is the other's way out.
  EXPECT_EQ(route.balance, gateway::Balance::kOrdered);
  // The pace that keeps the levels, and what the limit of 3 s leaves beside the answer itself.
  const gateway::ShedOptions& shed = route.queue.interactive.shed;
  EXPECT_NEAR(shed.requests_per_s, 7.8, 0.5);
  EXPECT_NEAR(ToSeconds(shed.within), 3 - 0.3, 0.1);
  EXPECT_NEAR(route.queue.batch.shed.requests_per_s, 12.5, 0.5);
  EXPECT_EQ(route.queue.batch.shed.within, std::chrono::seconds(60));
}

TEST_F(RoutingPlanTest, AMixSharesInteractiveTrafficByWeightAndLeavesBatchToTheOthers) {
  // Both keep the levels: both share both tiers.
  const auto both = gateway::ParseGatewayConfig(Render({}, "routing: mix"), "routing.yaml");
  ASSERT_TRUE(both) << both.error().message;
  const gateway::RouteConfig& shared = both->router.routes.at(0);
  EXPECT_EQ(shared.balance, gateway::Balance::kLeastTokens);
  ASSERT_EQ(shared.targets.size(), 2u);
  for (const gateway::TargetConfig& target : shared.targets) {
    EXPECT_TRUE(target.interactive && target.batch);
  }
  EXPECT_NEAR(shared.queue.interactive.shed.requests_per_s, 12.5 + 7.8, 1);

  // The slow one breaks the limit of 3 s: it takes what nobody waits for.
  TwoSpeeds bench;
  bench.slow_e2e_s = 8;
  const std::string text = Render(bench, "routing: mix");
  const auto one = gateway::ParseGatewayConfig(text, "routing.yaml");
  ASSERT_TRUE(one) << one.error().message << text;
  for (const gateway::TargetConfig& target : one->router.routes.at(0).targets) {
    EXPECT_EQ(target.interactive, target.upstream == "quick") << text;
    EXPECT_EQ(target.batch, target.upstream == "cheap") << text;
  }
}

TEST_F(RoutingPlanTest, APlanThatRoutesNothingIsRefusedWithTheReason) {
  TwoSpeeds bench;
  bench.slow_e2e_s = 60;
  const auto config = gateway::ParseGatewayConfig(Render(bench), "routing.yaml");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, HasSubstr("no candidate kept the service levels"));
}

}  // namespace
}  // namespace tare
