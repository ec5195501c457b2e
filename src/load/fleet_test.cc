#include "load/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <future>
#include <thread>

#include "load/fleet_wire.h"
#include "load/frame.h"
#include "load/pacing_server.h"
#include "load/random.h"
#include "load/recording_wire.h"
#include "load/test_free_port.h"

namespace tare::load {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr const char* kKey = "a key of this test";

AgentOptions Agent(std::uint16_t port, const std::string& name, const std::string& key = kKey) {
  AgentOptions options;
  options.host = "127.0.0.1";
  options.port = port;
  options.key = key;
  options.name = name;
  return options;
}

// A fleet whose agents are threads of this process.
struct LocalFleet {
  explicit LocalFleet(int agents) {
    FleetOptions options;
    options.agents = agents;
    options.port = FreePort();
    options.key = kKey;
    options.patience = seconds(60);
    for (int i = 0; i < agents; ++i) {
      threads.emplace_back([i, port = options.port] {
        const Status ran = RunAgent(Agent(port, "agent-" + std::to_string(i)));
        EXPECT_TRUE(ran.has_value()) << ran.error().message;
      });
    }
    auto gathered = Fleet::Gather(options);
    EXPECT_TRUE(gathered.has_value()) << gathered.error().message;
    fleet = *std::move(gathered);
  }
  ~LocalFleet() {
    fleet.reset();
    for (std::thread& thread : threads) thread.join();
  }
  std::unique_ptr<Fleet> fleet;
  std::vector<std::thread> threads;
};

LoadOptions Options(const std::string& url, Fleet* fleet) {
  LoadOptions options;
  options.url = url;
  options.fleet = fleet;
  options.arrival.users = 6;
  options.requests = 60;
  options.workload.input_tokens = 20;
  options.workload.output_tokens = 4;
  options.workload.seed = 5;
  return options;
}

const store::ValidityCheck* Check(const store::RunRecord& record, const std::string& name) {
  for (const store::ValidityCheck& check : record.checks) {
    if (check.name == name) return &check;
  }
  return nullptr;
}

TEST(Fleet, AgentsShareTheUsersAndTheirRecordingsAreOne) {
  const auto server = PacingServer::Start({}).value();
  LocalFleet local(3);
  const store::RunRecord record =
      RunLoad(Options(server->url(), local.fleet.get()), nullptr).value();
  EXPECT_EQ(record.summary.total, 60u);
  EXPECT_EQ(record.summary.ok, 60u);
  EXPECT_EQ(record.summary.itl.sent.n, 60u * 3);
  EXPECT_EQ(record.summary.input_tokens, 60u * 20) << "agents make prompts as calibrated";
  const json& agents = record.workload["agents"];
  ASSERT_EQ(agents.size(), 3u);
  for (const json& agent : agents) {
    EXPECT_EQ(agent["requests"], 20);
    EXPECT_FALSE(agent["lost"]);
    // One machine, one clock.
    EXPECT_LT(std::abs(agent["clock_offset_s"].get<double>()),
              agent["clock_uncertainty_s"].get<double>() + 1e-6);
  }
  ASSERT_NE(Check(record, "agents"), nullptr);
  EXPECT_TRUE(Check(record, "agents")->ok) << Check(record, "agents")->detail;
  EXPECT_NE(Check(record, "start_together"), nullptr);
}

TEST(Fleet, ServesOneRunAfterAnother) {
  const auto server = PacingServer::Start({}).value();
  LocalFleet local(2);
  for (int i = 0; i < 3; ++i) {
    LoadOptions options = Options(server->url(), local.fleet.get());
    options.arrival.users = 2 + i;
    EXPECT_EQ(RunLoad(options, nullptr).value().summary.ok, 60u);
  }
}

// The arrivals of all agents together are those one process would have made.
TEST(Fleet, TheScheduleIsTheSameHoweverManySendIt) {
  const auto server = PacingServer::Start({}).value();
  const auto arrivals = [&](Fleet* fleet) {
    LoadOptions options = Options(server->url(), fleet);
    options.arrival.kind = ArrivalSpec::Kind::kPoisson;
    options.arrival.rate = 300;
    options.arrival.users = 1;
    const store::RunRecord record = RunLoad(options, nullptr).value();
    EXPECT_EQ(record.summary.total, 60u);
    EXPECT_THAT(Check(record, "achieved_rate")->detail, HasSubstr("60 of 60"));
    return record.series["requests"]["intended_s"].get<std::vector<double>>();
  };
  const std::vector<double> alone = arrivals(nullptr);
  LocalFleet local(3);
  const std::vector<double> together = arrivals(local.fleet.get());
  ASSERT_EQ(alone.size(), together.size());
  // Clock offsets are known to half a round trip.
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(alone[i], together[i], 0.02) << i;
}

TEST(Fleet, AStrangerIsTurnedAwayAndTheRightOneJoins) {
  FleetOptions options;
  options.agents = 1;
  options.port = FreePort();
  options.key = kKey;
  options.patience = seconds(60);
  auto wrong = std::async(std::launch::async,
                          [&] { return RunAgent(Agent(options.port, "w", "another key")); });
  auto gathered = std::async(std::launch::async, [&] { return Fleet::Gather(options); });
  const Status refused = wrong.get();
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("--key-file"));
  auto right =
      std::async(std::launch::async, [&] { return RunAgent(Agent(options.port, "right")); });
  auto fleet = gathered.get();
  ASSERT_TRUE(fleet.has_value()) << fleet.error().message;
  fleet->reset();
  EXPECT_TRUE(right.get().has_value());
}

TEST(Fleet, SaysWhoDidNotCome) {
  FleetOptions options;
  options.agents = 2;
  options.key = kKey;
  options.patience = milliseconds(50);
  EXPECT_THAT(Fleet::Gather(options).error().message, HasSubstr("0 of 2 agents joined"));
  options.key.clear();
  EXPECT_THAT(Fleet::Gather(options).error().message, HasSubstr("--key-file"));
  AgentOptions agent = Agent(FreePort(), "a");
  agent.patience = milliseconds(50);
  EXPECT_THAT(RunAgent(agent).error().message, HasSubstr("refused"));
}

// Speaks the agent's part up to the start of a run, then hangs up.
void DieInTheRun(std::uint16_t port) {
  std::unique_ptr<Link> link;
  while (link == nullptr) {
    if (auto connected = Link::Connect("127.0.0.1", port, seconds(5))) link = *std::move(connected);
  }
  const json challenge = link->ReceiveJson(FrameKind::kChallenge, seconds(60)).value();
  const auto send = [&](FrameKind kind, const json& payload) {
    ASSERT_TRUE(link->Send(kind, payload).has_value());
  };
  send(FrameKind::kHello, {{"proof", Proof(kKey, "agent" + challenge["nonce"].get<std::string>())},
                           {"nonce", "n"},
                           {"protocol", kFleetProtocol},
                           {"name", "mortal"},
                           {"pid", 1},
                           {"cores", 1}});
  EXPECT_EQ(link->ReceiveJson(FrameKind::kWelcome, seconds(60)).value()["proof"],
            Proof(kKey, "coordinatorn"));
  while (true) {
    const Result<Frame> frame = link->Receive(seconds(60));
    ASSERT_TRUE(frame.has_value());
    if (frame->kind == FrameKind::kPing)
      send(FrameKind::kPong, {{"ns", net::MonotonicNow().count()}});
    if (frame->kind == FrameKind::kPlan) send(FrameKind::kReady, json::object());
    if (frame->kind == FrameKind::kStart) return;
  }
}

TEST(Fleet, AnAgentThatIsLostMakesTheRunInvalidAndItEnds) {
  const auto server = PacingServer::Start({}).value();
  FleetOptions options;
  options.agents = 2;
  options.port = FreePort();
  options.key = kKey;
  options.patience = seconds(60);
  std::thread mortal([&] { DieInTheRun(options.port); });
  std::thread good([&] { EXPECT_TRUE(RunAgent(Agent(options.port, "good")).has_value()); });
  auto fleet = Fleet::Gather(options).value();
  const store::RunRecord record = RunLoad(Options(server->url(), fleet.get()), nullptr).value();
  EXPECT_FALSE(record.valid);
  EXPECT_FALSE(Check(record, "agents")->ok);
  EXPECT_THAT(Check(record, "agents")->detail, HasSubstr("1 of 2 agents were lost: mortal"));
  EXPECT_EQ(record.summary.ok, 30u) << "the other's part is kept";
  EXPECT_THAT(RunLoad(Options(server->url(), fleet.get()), nullptr).error().message,
              HasSubstr("mortal"));
  fleet.reset();
  mortal.join();
  good.join();
}

TEST(Fleet, AnAgentThatCannotMakeItsPartSaysWhy) {
  const auto server = PacingServer::Start({}).value();
  LocalFleet local(1);
  FleetJob job;
  job.plan.arrival.users = 1;
  job.shape.url = net::ParseUrl(server->url()).value();
  job.workload.dataset = "/no/such/file.jsonl";
  const auto started = local.fleet->Start(job, 1);
  ASSERT_FALSE(started.has_value());
  EXPECT_THAT(started.error().message, HasSubstr("agent 'agent-0'"));
  EXPECT_THAT(started.error().message, HasSubstr("/no/such/file.jsonl"));
}

// HMAC-SHA-256 of RFC 4231, test case 2.
TEST(Frames, ProofIsHmacSha256) {
  EXPECT_EQ(Proof("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_TRUE(SameProof("ab", "ab"));
  EXPECT_FALSE(SameProof("ab", "ac"));
  EXPECT_FALSE(SameProof("ab", "abc"));
}

TEST(Frames, ReadsHostAndPort) {
  EXPECT_EQ(ParseHostPort("a.b:70").value(), (std::pair<std::string, std::uint16_t>{"a.b", 70}));
  EXPECT_EQ(ParseHostPort("[::1]:7").value().first, "::1");
  for (const char* bad : {"", "a", ":5", "a:", "a:x", "a:70000"}) {
    EXPECT_FALSE(ParseHostPort(bad).has_value()) << bad;
  }
}

RequestRecord RandomRecord(Random& random) {
  RequestRecord r;
  r.index = random.Below(1000);
  r.intended = Nanos(1'000'000'000 + static_cast<std::int64_t>(random.Below(5'000'000'000)));
  r.sent = r.intended + Nanos(static_cast<std::int64_t>(random.Below(1'000'000)));
  r.end = r.sent + Nanos(static_cast<std::int64_t>(random.Below(2'000'000'000)));
  r.wanted_output = static_cast<std::uint32_t>(random.Below(100));
  r.error = random.Below(4) == 0 ? RequestError::kReset : RequestError::kNone;
  return r;
}

bool Same(const Recorder& a, const Recorder& b) {
  if (!(a.gaps() == b.gaps()) || a.window_tokens() != b.window_tokens()) return false;
  if (a.gap_heat() != b.gap_heat() || a.seconds().size() != b.seconds().size()) return false;
  for (std::size_t i = 0; i < a.seconds().size(); ++i) {
    const SecondBucket &x = a.seconds()[i], &y = b.seconds()[i];
    if (x.started != y.started || x.ok != y.ok || x.failed != y.failed || x.tokens != y.tokens ||
        x.chunks != y.chunks) {
      return false;
    }
  }
  if (a.requests().size() != b.requests().size()) return false;
  for (std::size_t i = 0; i < a.requests().size(); ++i) {
    const RequestRecord &x = a.requests()[i], &y = b.requests()[i];
    if (x.index != y.index || x.intended != y.intended || x.end != y.end || x.error != y.error) {
      return false;
    }
  }
  return true;
}

// Recording in k processes and merging what they send gives what one process would have recorded.
RC_GTEST_PROP(RecordingWire, MergesExactly, ()) {
  const auto parts = *rc::gen::inRange<std::size_t>(1, 5);
  const Nanos start(1'000'000'000);
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  Recorder whole(start, start, Nanos::max());
  std::vector<Recorder> split(parts, Recorder(start, start, Nanos::max()));
  const std::size_t events = random.Below(200);
  std::vector<std::vector<RequestRecord>> by_part(parts);
  for (std::size_t i = 0; i < events; ++i) {
    const std::size_t part = random.Below(parts);
    const RequestRecord record = RandomRecord(random);
    const Nanos gap(static_cast<std::int64_t>(random.Below(3'000'000'000)));
    split[part].Started(record.intended);
    whole.Started(record.intended);
    split[part].Chunk(record.end, 2, gap, true);
    whole.Chunk(record.end, 2, gap, true);
    split[part].Ended(record);
    by_part[part].push_back(record);
  }
  for (const auto& records : by_part) {
    for (const RequestRecord& record : records) whole.Ended(record);
  }
  Recorder merged(start, start, Nanos::max());
  for (Recorder& recorder : split) {
    // A clock that is off by a constant, taken back.
    recorder.Shift(Nanos(12345));
    const std::string bytes = PackRecording({recorder, {}, {"a sample"}, nullptr});
    LoadSource::Recording back = UnpackRecording(bytes).value();
    RC_ASSERT(back.error_samples == std::vector<std::string>{"a sample"});
    back.recorder.Shift(Nanos(-12345));
    merged.Merge(std::move(back.recorder));
  }
  RC_ASSERT(Same(merged, whole));
}

RC_GTEST_PROP(RecordingWire, HistogramsKeepTheirMeanAndEnds, ()) {
  const auto values = *rc::gen::container<std::vector<std::int64_t>>(
      rc::gen::inRange<std::int64_t>(0, 20'000'000'000));
  Recorder recorder(Nanos(1), Nanos(1), Nanos::max());
  for (const std::int64_t v : values) recorder.Chunk(Nanos(5), 1, Nanos(v), true);
  const auto back = UnpackRecording(PackRecording({recorder, {}, {}, nullptr})).value();
  const Histogram& gaps = back.recorder.gaps();
  RC_ASSERT(gaps == recorder.gaps());
  RC_ASSERT(std::abs(gaps.mean() - recorder.gaps().mean()) <= 2);
  RC_ASSERT(std::abs(gaps.stddev() - recorder.gaps().stddev()) <=
            1e-3 * recorder.gaps().stddev() + 1e-3 * recorder.gaps().mean() + 2);
}

RC_GTEST_PROP(RecordingWire, DamageIsRefused, (const std::string& noise)) {
  RC_ASSERT(!UnpackRecording(noise).has_value());
  Recorder recorder(Nanos(1), Nanos(1), Nanos::max());
  recorder.Chunk(Nanos(5), 1, Nanos(3), true);
  ThreadMeasurement thread;
  thread.receive_lag.Add(7);
  const std::string bytes = PackRecording({recorder, {thread}, {}, nullptr});
  RC_ASSERT(UnpackRecording(bytes).has_value());
  const auto cut = *rc::gen::inRange<std::size_t>(0, bytes.size());
  RC_ASSERT(!UnpackRecording(std::string_view(bytes).substr(0, cut)).has_value());
}

TEST(FleetWire, AJobReadsBack) {
  FleetJob job;
  job.plan.arrival.kind = ArrivalSpec::Kind::kGamma;
  job.plan.arrival.rate = 3.5;
  job.plan.arrival.cv = 2;
  job.plan.seed = 77;
  job.plan.sessions = true;
  job.shape.url = net::ParseUrl("https://h:8443/v1/chat/completions").value();
  job.shape.headers = {{"Authorization", "Bearer secret"}, {"X-Other", "o"}};
  job.shape.head_json = "{\"model\":\"m\"";
  job.workload.turns = 4;
  job.workload.seed = 77;
  AgentPart part{2, 5, 3, 40};
  const json document = JobToJson(job, part);
  EXPECT_THAT(document.dump(), ::testing::Not(HasSubstr("secret"))) << "keys stay at home";
  AgentPart got;
  const FleetJob back = JobFromJson(document, got).value();
  EXPECT_EQ(back.plan.arrival.rate, 3.5);
  EXPECT_EQ(back.plan.arrival.kind, ArrivalSpec::Kind::kGamma);
  EXPECT_EQ(back.plan.requests, 40u);
  EXPECT_EQ(back.plan.first_lane, 2);
  EXPECT_EQ(back.plan.lanes, 5);
  EXPECT_EQ(back.workload.turns, 4);
  EXPECT_EQ(back.shape.url.Origin(), "https://h:8443");
  EXPECT_EQ(back.shape.headers.size(), 1u);
  // Every key is needed, and none of another kind is taken.
  for (const auto& [key, value] : document.items()) {
    json damaged = document;
    damaged.erase(key);
    EXPECT_FALSE(JobFromJson(damaged, got).has_value()) << key;
    damaged[key] = json::array({"x"});
    EXPECT_FALSE(JobFromJson(damaged, got).has_value()) << key;
  }
}

}  // namespace
}  // namespace tare::load
