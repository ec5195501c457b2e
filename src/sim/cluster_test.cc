// Several replicas: routing, scaling, failures, determinism; and whole plans.
#include "sim/cluster.h"

#include <gtest/gtest.h>

#include <cmath>

#include "econ/catalog.h"
#include "sim/simulate.h"

namespace tare::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class EvenTime final : public StepTime {
 public:
  explicit EvenTime(double step, double row = 1e-5) : step_(step), row_(row) {}
  double Seconds(const StepLoad& load) const override { return step_ + row_ * load.rows; }
  nlohmann::json Describe() const override { return "even"; }

 private:
  double step_, row_;
};

GroupSpec Group(std::string name, int replicas, double step = 0.01) {
  GroupSpec group;
  group.name = std::move(name);
  group.replicas = replicas;
  group.step_time = std::make_shared<EvenTime>(step);
  group.scheduler.pool.pages = 1024;
  group.scheduler.max_num_seqs = 16;
  group.scheduler.max_num_batched_tokens = 512;
  group.scheduler.max_model_len = 2048;
  group.scheduler.batch_window = Nanos{0};
  return group;
}

ClusterSpec OpenLoop(double rate, Nanos duration) {
  ClusterSpec spec;
  spec.traffic.arrival.kind = load::ArrivalSpec::Kind::kPoisson;
  spec.traffic.arrival.rate = rate;
  spec.traffic.classes = {{"chat", 1, engine::Tier::kInteractive, 200, 50, 0.5, 0}};
  spec.traffic.seed = 7;
  spec.duration = duration;
  return spec;
}

Outcome MustRun(const ClusterSpec& spec) {
  auto outcome = RunCluster(spec, nullptr);
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  return std::move(*outcome);
}

store::RunSummary SummaryOf(const Outcome& outcome) {
  return load::Summarize(outcome.recorder, outcome.window, {});
}

// Everything a record would hold, as text.
std::string Print(const Outcome& outcome) {
  store::RunRecord record;
  record.summary = SummaryOf(outcome);
  record.series = load::MakeSeries(outcome.recorder, outcome.window, {});
  return store::ToJson(record).dump();
}

TEST(ClusterTest, FastAndSlowGiveTheSameRecord) {
  for (const bool closed : {false, true}) {
    ClusterSpec spec = OpenLoop(20, seconds(60));
    if (closed) {
      spec.traffic.arrival.kind = load::ArrivalSpec::Kind::kClosed;
      spec.traffic.arrival.users = 12;
      spec.traffic.arrival.think_time = milliseconds(100);
    }
    spec.traffic.classes[0].shared_prefix = 0.5;
    spec.groups = {Group("a", 2), Group("b", 1, 0.02)};
    spec.groups[0].overheads = {0.002, 1e-6, 0.001};
    spec.incidents = {{Incident::Kind::kFail, seconds(20), 0, 1, seconds(10)}};
    const std::string fast = Print(MustRun(spec));
    EXPECT_EQ(fast, Print(MustRun(spec)));  // deterministic
    spec.fast_forward = false;
    EXPECT_EQ(fast, Print(MustRun(spec)));
    spec.traffic.seed = 8;
    EXPECT_NE(fast, Print(MustRun(spec)));
  }
}

// One server that answers requests one at a time, each in exactly 0.1 s: an M/D/1 queue, whose mean
// wait is rho / (2 mu (1 - rho)) (Pollaczek and Khinchine).
TEST(ClusterTest, QueueingAgreesWithTheory) {
  ClusterSpec spec = OpenLoop(7, seconds(40'000));
  spec.traffic.classes = {{"one", 1, engine::Tier::kInteractive, 16, 1, 0, 0}};
  GroupSpec group = Group("server", 1, 0.1 - 16e-5);
  group.scheduler.max_num_seqs = 1;
  spec.groups = {group};
  const store::RunSummary summary = SummaryOf(MustRun(spec));
  const double rho = 0.7, mean_wait = rho / (2 * 10 * (1 - rho));
  EXPECT_EQ(summary.failed, 0u);
  EXPECT_NEAR(summary.ttft.sent.mean, 0.1 + mean_wait, 0.03 * (0.1 + mean_wait));
  EXPECT_NEAR(summary.requests_per_s, 7, 0.05);
}

TEST(ClusterTest, ClosedLoopsFollowLittlesLaw) {
  ClusterSpec spec = OpenLoop(1, seconds(300));
  spec.traffic.arrival.kind = load::ArrivalSpec::Kind::kClosed;
  spec.traffic.arrival.users = 24;
  spec.traffic.arrival.think_time = milliseconds(500);
  spec.groups = {Group("a", 3)};
  spec.warm_up = seconds(5);
  const store::RunSummary s = SummaryOf(MustRun(spec));
  EXPECT_NEAR(s.requests_per_s * (s.e2e.sent.mean + 0.5), 24, 0.3);
}

// The load tester's users begin one after another during the warm-up; so must these, or they stay
// in step for the whole run and every prompt waits for all the others.
TEST(ClusterTest, UsersOfAClosedLoopDoNotStartTogether) {
  ClusterSpec spec = OpenLoop(1, seconds(60));
  spec.traffic.arrival.kind = load::ArrivalSpec::Kind::kClosed;
  spec.traffic.arrival.users = 4;
  spec.groups = {Group("a", 1)};
  spec.groups[0].step_time = std::make_shared<EvenTime>(0.001, 1e-4);
  spec.traffic.classes[0].length_cv = 0;
  const double together = SummaryOf(MustRun(spec)).ttft.sent.mean;
  spec.warm_up = seconds(12);
  const double apart = SummaryOf(MustRun(spec)).ttft.sent.mean;
  EXPECT_LT(apart, 0.8 * together);
}

TEST(ClusterTest, RoutersShareTheLoadAsTheySay) {
  ClusterSpec spec = OpenLoop(10, seconds(300));
  spec.groups = {Group("fast", 1, 0.01), Group("slow", 1, 0.03)};
  spec.groups[0].weight = 3;
  spec.router = RouterPolicy::kRoundRobin;
  Outcome outcome = MustRun(spec);
  const auto share = [&] {
    return static_cast<double>(outcome.groups[0].requests) /
           static_cast<double>(outcome.groups[0].requests + outcome.groups[1].requests);
  };
  EXPECT_NEAR(share(), 0.75, 0.01);
  spec.router = RouterPolicy::kLeastLoaded;
  outcome = MustRun(spec);
  EXPECT_GT(share(), 0.6);

  spec.traffic.classes = {{"chat", 3, engine::Tier::kInteractive, 100, 20, 0, 0},
                          {"night", 1, engine::Tier::kBatch, 100, 20, 0, 0}};
  spec.router = RouterPolicy::kTiers;
  spec.groups[0].batch = false;
  spec.groups[1].interactive = false;
  outcome = MustRun(spec);
  EXPECT_NEAR(share(), 0.75, 0.03);
}

TEST(ClusterTest, AffinityFindsMoreInTheCache) {
  ClusterSpec spec = OpenLoop(8, seconds(200));
  spec.traffic.classes.clear();
  for (int i = 0; i < 40; ++i) {
    spec.traffic.classes.push_back(
        {fmt::format("tenant {}", i), 1, engine::Tier::kInteractive, 600, 20, 0, 0.9});
  }
  spec.groups = {Group("a", 4)};
  spec.groups[0].scheduler.pool.pages = 640;  // ten tenants' prefixes and some work
  const auto hit_rate = [&](RouterPolicy policy) {
    spec.router = policy;
    const Outcome outcome = MustRun(spec);
    return static_cast<double>(outcome.groups[0].prefix_hits) /
           static_cast<double>(outcome.groups[0].prefix_queries);
  };
  const double affine = hit_rate(RouterPolicy::kPrefixAffinity);
  const double blind = hit_rate(RouterPolicy::kRoundRobin);
  EXPECT_GT(affine, blind + 0.2);
  EXPECT_LT(affine, 0.91);
}

TEST(ClusterTest, AutoscalingFollowsTheLoadAfterStartUp) {
  ClusterSpec spec = OpenLoop(1, seconds(1200));
  spec.traffic.arrival.burst_factor = 30;
  spec.traffic.arrival.burst_every = seconds(400);
  spec.traffic.arrival.burst_for = seconds(200);
  GroupSpec group = Group("a", 1, 0.05);
  group.start_up = seconds(40);
  group.autoscale = Autoscale{1, 6, 8, seconds(10), seconds(60)};
  spec.groups = {group};
  const Outcome outcome = MustRun(spec);
  EXPECT_GE(outcome.groups[0].most_replicas, 4);
  EXPECT_LE(outcome.groups[0].most_replicas, 6);
  // Nobody serves before the start-up is over, and all but one are gone before the next burst.
  int serving_before_burst = 0, most_early = 0;
  for (const ReplicaChange& change : outcome.changes) {
    if (change.at < seconds(799)) serving_before_burst = change.serving;
    if (change.at < seconds(440)) most_early = std::max(most_early, change.serving);
  }
  EXPECT_EQ(most_early, 1);
  EXPECT_EQ(serving_before_burst, 1);
  // Paid for more than one replica all the time, and for less than six.
  EXPECT_GT(outcome.groups[0].replica_seconds, 1300);
  EXPECT_LT(outcome.groups[0].replica_seconds, 6 * 1200);
  EXPECT_EQ(SummaryOf(outcome).failed, 0u);
}

TEST(ClusterTest, AFailureCutsStreamsAndReroutesTheRest) {
  ClusterSpec spec = OpenLoop(30, seconds(60));
  spec.groups = {Group("a", 2)};
  spec.groups[0].start_up = seconds(5);
  spec.incidents = {{Incident::Kind::kFail, seconds(30), 0, 0, seconds(1)}};
  const Outcome outcome = MustRun(spec);
  const store::RunSummary summary = SummaryOf(outcome);
  ASSERT_EQ(summary.errors_by_kind.size(), 1u);
  EXPECT_GT(summary.errors_by_kind.at("stream_cut"), 0u);
  EXPECT_LE(summary.errors_by_kind.at("stream_cut"), 16u);  // at most what ran
  ASSERT_EQ(outcome.changes.size(), 3u);
  EXPECT_EQ(outcome.changes[1].serving, 1);
  EXPECT_EQ(outcome.changes[2].serving, 2);
  EXPECT_EQ(outcome.changes[2].at, seconds(36));
}

TEST(ClusterTest, ADrainLosesNothing) {
  ClusterSpec spec = OpenLoop(30, seconds(60));
  spec.groups = {Group("a", 2)};
  spec.incidents = {{Incident::Kind::kDrain, seconds(20), 0, 1, seconds(10)}};
  const Outcome outcome = MustRun(spec);
  EXPECT_EQ(SummaryOf(outcome).failed, 0u);
  EXPECT_EQ(outcome.changes.size(), 3u);
}

TEST(ClusterTest, FullQueuesAndMissingReplicasAreAnswers) {
  ClusterSpec spec = OpenLoop(100, seconds(20));
  spec.groups = {Group("a", 1)};
  spec.groups[0].max_in_flight = 8;
  spec.incidents = {{Incident::Kind::kFail, seconds(10), 0, 0, Nanos{0}}};
  const store::RunSummary summary = SummaryOf(MustRun(spec));
  EXPECT_GT(summary.errors_by_kind.at("http_429"), 0u);
  EXPECT_GT(summary.errors_by_kind.at("http_503"), 0u);
}

TEST(ClusterTest, ReplicasOfAnotherTierDoNotMakeARequestWait) {
  ClusterSpec spec = OpenLoop(20, seconds(20));  // interactive requests only
  spec.groups = {Group("chat", 1), Group("night", 1)};
  spec.groups[0].batch = false;
  spec.groups[1].interactive = false;
  spec.router = RouterPolicy::kTiers;
  spec.incidents = {{Incident::Kind::kFail, seconds(10), 0, 0, Nanos{0}}};
  const store::RunSummary summary = SummaryOf(MustRun(spec));
  EXPECT_GT(summary.errors_by_kind.at("http_503"), 0u) << "nobody is there for it";
  EXPECT_EQ(summary.errors_by_kind.count("http_429"), 0u) << "nobody is busy";
}

constexpr const char* kPlan = R"(
schema: tare.sim/1
name: two kinds
traffic:
  rate: 4/s
  seed: 3
  classes:
    chat: {share: 3, input_tokens: 500, output_tokens: 100, length_cv: 0.5}
    night: {tier: batch, input_tokens: 2000, output_tokens: 300}
duration: 5m
service_levels: {ttft: 2s, tpot: 60ms}
router: tiers
replicas:
  a100: {model: llama-3-8b, device: a100-80, serves: [interactive], price: 1.5/h}
  a10: {model: llama-3-8b, device: a10, serves: [batch], replicas: 2}
)";

Result<SimPlan> Parse(const std::string& text) {
  return ParseSimPlan(text, "plan.yaml", ".", *econ::Catalog::BuiltIn());
}

TEST(SimulateTest, APlanBecomesARecord) {
  const auto plan = Parse(kPlan);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  auto simulation = Simulate(*plan, nullptr);
  ASSERT_TRUE(simulation.has_value());
  const store::RunRecord& record = simulation->record;
  EXPECT_EQ(record.tag, "simulated");
  EXPECT_TRUE(record.valid);
  EXPECT_NEAR(record.summary.requests_per_s, 4, 0.3);
  EXPECT_GT(record.summary.goodput_per_s, 0);
  EXPECT_EQ(record.target["groups"].size(), 2u);
  EXPECT_NEAR(record.target["groups"][0]["usd"].get<double>(), 1.5 * (300 + 10) / 3600, 0.01);
  // It reads back as any other run.
  nlohmann::json document = store::ToJson(record);
  document["id"] = "20261130-000000-000-0000";
  EXPECT_TRUE(store::RunRecordFromJson(document).has_value());
  EXPECT_NE(GroupTable(*plan, simulation->outcome).find("a100"), std::string::npos);
}

TEST(SimulateTest, OverloadIsNotAValidRun) {
  std::string text = kPlan;
  text.replace(text.find("4/s"), 3, "400/s");
  const auto plan = Parse(text);
  ASSERT_TRUE(plan.has_value());
  auto simulation = Simulate(*plan, nullptr);
  ASSERT_TRUE(simulation.has_value());
  EXPECT_FALSE(simulation->record.valid);
}

TEST(SimPlanTest, MistakesAreNamed) {
  const auto message = [](std::string text, const char* from, const char* to) {
    text.replace(text.find(from), std::string(from).size(), to);
    const auto plan = Parse(text);
    return plan ? std::string("accepted") : plan.error().message;
  };
  const auto has = [](const std::string& whole, const char* part) {
    return whole.find(part) != std::string::npos;
  };
  EXPECT_PRED2(has, message(kPlan, "rate: 4/s", "rate: 4/s\n  users: 3"), "one of 'users'");
  EXPECT_PRED2(has, message(kPlan, "duration: 5m", ""), "needs an end");
  EXPECT_PRED2(has, message(kPlan, "router: tiers", "router: random"), "router");
  EXPECT_PRED2(has, message(kPlan, "llama-3-8b, device: a10,", "llama-3-9b, device: a10,"),
               "llama-3-9b");
  EXPECT_PRED2(has, message(kPlan, "llama-3-8b, device: a10,", "llama-3-70b, device: a10,"),
               "does not fit");
  EXPECT_PRED2(has, message(kPlan, "length_cv", "lenght_cv"), "length_cv");
  EXPECT_PRED2(has,
               message(kPlan, "duration: 5m", "duration: 5m\nincidents: [{at: 1m, fail: b200}]"),
               "no replicas named");
}

// The Azure conversation trace is an hour; whether a whole day of it stays under a minute is
// measured by hand (docs/SIMULATION.md), here that it runs at all.
TEST(SimulateTest, ReplaysATrace) {
  const std::filesystem::path trace =
      std::filesystem::path(TARE_SOURCE_DIR) /
      "../shared/data/traces/azure2023/AzureLLMInferenceTrace_conv.csv";
  if (!std::filesystem::exists(trace)) GTEST_SKIP() << "needs " << trace;
  const auto plan = Parse(fmt::format(R"(
schema: tare.sim/1
traffic: {{trace: {}, repeat: true, seed: 1}}
duration: 90m
replicas:
  a100: {{model: llama-3-8b, device: a100-80, replicas: 4}}
)",
                                      std::filesystem::absolute(trace).string()));
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  auto simulation = Simulate(*plan, nullptr);
  ASSERT_TRUE(simulation.has_value());
  EXPECT_GT(simulation->record.summary.total, 25'000u);
  EXPECT_EQ(simulation->record.summary.failed, 0u);
}

TEST(TrafficTest, ADrawnTraceIsTheSameLoad) {
  ClusterSpec drawn = OpenLoop(20, seconds(30));
  drawn.groups = {Group("g", 1)};
  const auto trace = TraceOf(drawn.traffic, seconds(60), "drawn");
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  ClusterSpec replayed = drawn;
  replayed.traffic.arrival.kind = load::ArrivalSpec::Kind::kTrace;
  replayed.traffic.trace = std::make_shared<const load::Trace>(*trace);
  const store::RunSummary a = SummaryOf(MustRun(drawn)), b = SummaryOf(MustRun(replayed));
  // Its times count from the first request, so the window holds one or two others.
  EXPECT_NEAR(static_cast<double>(b.ok), static_cast<double>(a.ok), 3);
  EXPECT_NEAR(b.ttft.sent.p90 / a.ttft.sent.p90, 1, 0.05);
  EXPECT_NEAR(b.output_tokens_per_s / a.output_tokens_per_s, 1, 0.03);

  ClusterSpec closed = drawn;
  closed.traffic.arrival.kind = load::ArrivalSpec::Kind::kClosed;
  closed.traffic.arrival.users = 2;
  EXPECT_FALSE(TraceOf(closed.traffic, seconds(1), "closed").has_value());
  EXPECT_FALSE(TraceOf(drawn.traffic, Nanos{1}, "nothing").has_value());
}

TEST(TrafficTest, ATemplatesTokensAreScaledAndShared) {
  TrafficSpec spec;
  spec.arrival.kind = load::ArrivalSpec::Kind::kTrace;
  spec.trace = std::make_shared<const load::Trace>(
      load::Trace{"t", {{Nanos{0}, 100, 5, {}}, {Nanos{1}, 10, 5, {}}}});
  spec.input_scale = 1.5;
  spec.shared_tokens = 32;
  const auto traffic = Traffic::Create(spec);
  ASSERT_TRUE(traffic.has_value());
  const SimRequest a = traffic->Make(0), b = traffic->Make(1);
  EXPECT_EQ(a.input_tokens, 150);
  EXPECT_EQ(b.input_tokens, 15);
  ASSERT_EQ(a.blocks.size(), 1u);
  ASSERT_EQ(b.blocks.size(), 1u);
  EXPECT_EQ(a.blocks[0].name, b.blocks[0].name);
  EXPECT_EQ(a.blocks[0].tokens, 32);
  EXPECT_EQ(b.blocks[0].tokens, 15);
  EXPECT_EQ(traffic->LongestSequence(), 155);
}

}  // namespace
}  // namespace tare::sim
