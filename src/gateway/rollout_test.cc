#include "gateway/rollout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace tare::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;
using ::testing::HasSubstr;

// How a simulated arm behaves.
struct Behaviour {
  double error_rate = 0.02;
  double ttft_s = 0.1;  // of an exponential distribution
};

class Simulation {
 public:
  Simulation(RolloutPolicy policy, std::uint64_t seed)
      : rollout("m", policy, [this] { return now; }), random_(seed) {}

  void Run(int requests, Behaviour baseline, Behaviour canary) {
    std::uniform_real_distribution<double> uniform(1e-9, 1);
    for (int i = 0; i < requests && rollout.state() == RolloutState::kRunning; ++i) {
      const bool arm = rollout.Assign(std::to_string(next_++), "", uniform(random_));
      const Behaviour& behaviour = arm ? canary : baseline;
      const double ttft = -std::log(uniform(random_)) * behaviour.ttft_s;
      rollout.Observe(
          arm, {uniform(random_) < behaviour.error_rate, FromSeconds(ttft), FromSeconds(ttft + 1)});
    }
  }

  system_clock::time_point now{};
  Rollout rollout;

 private:
  std::mt19937_64 random_;
  int next_ = 0;
};

RolloutPolicy Half() {
  RolloutPolicy policy;
  policy.share = 0.5;
  return policy;
}

TEST(Rollout, PromotesWhatIsAsGood) {
  Simulation simulation(Half(), 1);
  simulation.Run(60'000, {}, {});
  EXPECT_EQ(simulation.rollout.state(), RolloutState::kPromoted)
      << simulation.rollout.Report().because;
  EXPECT_TRUE(simulation.rollout.Assign("x", "", 0.99)) << "all go there now";
}

TEST(Rollout, RollsBackWhatFails) {
  Simulation simulation(Half(), 2);
  simulation.Run(5000, {}, {.error_rate = 0.2});
  EXPECT_EQ(simulation.rollout.state(), RolloutState::kRolledBack);
  EXPECT_THAT(simulation.rollout.Report().because, HasSubstr("error_rate"));
  EXPECT_LT(simulation.rollout.Report().canary_samples, 600u) << "and soon";
  EXPECT_FALSE(simulation.rollout.Assign("x", "", 0.01));
}

TEST(Rollout, RollsBackWhatIsSlow) {
  RolloutPolicy policy = Half();
  policy.ttft_p99 = milliseconds(10);
  Simulation simulation(policy, 3);
  simulation.Run(30'000, {}, {.ttft_s = 0.2});
  EXPECT_EQ(simulation.rollout.state(), RolloutState::kRolledBack);
  EXPECT_THAT(simulation.rollout.Report().because, HasSubstr("ttft_p99"));
}

// A canary just worse than the margin, looked at all the time: promoted in at most alpha of runs.
TEST(Rollout, FalsePromotionsKeepTheirPromise) {
  constexpr int kRuns = 300;
  int promoted = 0, rolled_back = 0;
  for (int run = 0; run < kRuns; ++run) {
    RolloutPolicy policy = Half();
    policy.error_margin = 0.05;
    Simulation simulation(policy, 1000 + static_cast<std::uint64_t>(run));
    simulation.Run(4000, {.error_rate = 0.02}, {.error_rate = 0.0701});
    promoted += simulation.rollout.state() == RolloutState::kPromoted ? 1 : 0;
    simulation.rollout.Judge();
    rolled_back += simulation.rollout.state() == RolloutState::kRolledBack ? 1 : 0;
  }
  EXPECT_LE(promoted, kRuns * 0.05);
  RecordProperty("promoted", promoted);
  RecordProperty("rolled_back", rolled_back);
}

TEST(Rollout, NoDataIsNotAPass) {
  RolloutPolicy policy = Half();
  policy.feedback_gain = 0.05;
  Simulation simulation(policy, 4);
  simulation.Run(60'000, {}, {});
  const RolloutReport report = simulation.rollout.Report();
  EXPECT_EQ(report.state, RolloutState::kRunning) << "nobody has given feedback";
  EXPECT_EQ(report.gates.at(0).verdict, GateVerdict::kPass);
  EXPECT_EQ(report.gates.at(1).verdict, GateVerdict::kNoData);
  simulation.now += std::chrono::hours(25);
  simulation.rollout.Judge();
  EXPECT_EQ(simulation.rollout.state(), RolloutState::kRolledBack);
  EXPECT_THAT(simulation.rollout.Report().because, HasSubstr("feedback: no_data"));
}

TEST(Rollout, FeedbackFindsItsArmAndCountsOnce) {
  RolloutPolicy policy = Half();
  policy.feedback_gain = 0.05;
  policy.error_margin = 1;
  Simulation simulation(policy, 5);
  std::mt19937_64 random(6);
  for (int i = 0; i < 4000 && simulation.rollout.state() == RolloutState::kRunning; ++i) {
    const std::string id = "r" + std::to_string(i);
    const bool canary = simulation.rollout.Assign(id, "", (i % 2) == 0 ? 0.1 : 0.9);
    simulation.rollout.Observe(canary, {});
    const double good = canary ? 0.8 : 0.5;
    EXPECT_TRUE(
        simulation.rollout.Feedback(id, std::bernoulli_distribution(good)(random) ? 1 : -1));
    EXPECT_FALSE(simulation.rollout.Feedback(id, 1));
  }
  EXPECT_EQ(simulation.rollout.state(), RolloutState::kPromoted);
  EXPECT_FALSE(simulation.rollout.Feedback("unknown", 1));
}

TEST(Rollout, AUserKeepsAnArm) {
  RolloutPolicy policy;
  policy.share = 0.2;
  Rollout rollout("m", policy);
  int canary = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string user = "u" + std::to_string(i);
    const bool arm = rollout.Assign(user + "-1", user, 0.01);
    EXPECT_EQ(rollout.Assign(user + "-2", user, 0.99), arm);
    canary += arm ? 1 : 0;
  }
  EXPECT_NEAR(canary, 400, 90);  // 5 standard errors
}

TEST(Rollout, OutlivesARestart) {
  Simulation first(Half(), 7);
  first.Run(1000, {}, {});
  Simulation second(Half(), 8);
  ASSERT_TRUE(second.rollout.Restore(nlohmann::json::parse(first.rollout.Save().dump())));
  const RolloutReport a = first.rollout.Report(), b = second.rollout.Report();
  EXPECT_EQ(a.canary_samples, b.canary_samples);
  EXPECT_EQ(a.gates.at(0).canary_high, b.gates.at(0).canary_high);
  RolloutPolicy other = Half();
  other.error_margin = 0.5;
  Simulation third(other, 9);
  EXPECT_FALSE(third.rollout.Restore(first.rollout.Save())) << "the bar was moved";
  EXPECT_FALSE(third.rollout.Restore(nlohmann::json::object()));
  first.rollout.Decide(RolloutState::kRolledBack, "by hand");
  ASSERT_TRUE(second.rollout.Restore(first.rollout.Save()));
  EXPECT_EQ(second.rollout.state(), RolloutState::kRolledBack);
}

}  // namespace
}  // namespace tare::gateway
