#include "load/fleet.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/child_process.h"
#include "load/byte_stream.h"
#include "load/fleet_wire.h"
#include "load/frame.h"
#include "load/recording_wire.h"

namespace tare::load {
namespace {

using nlohmann::json;

constexpr Nanos kAnswerPatience = std::chrono::seconds(30);
// A stranger who says nothing keeps the others waiting this long.
constexpr Nanos kHelloPatience = std::chrono::seconds(5);
// Agents read data sets and traces before they are ready.
constexpr Nanos kReadyPatience = std::chrono::minutes(5);
constexpr Nanos kResultPatience = std::chrono::minutes(2);
// Before the start, beyond the longest round trip: agents make their threads in it.
constexpr Nanos kLead = std::chrono::milliseconds(200);
constexpr int kPings = 32;

struct Agent {
  std::unique_ptr<Link> link;
  AgentFacts facts;
  Nanos offset{0}, round_trip{0};
  // Written by the agent's reader during a run.
  std::atomic<std::uint64_t> in_flight{0}, ok{0}, failed{0}, tokens{0};
  std::atomic<bool> idle{false}, lost{false};
  std::string result;  // read after the reader has ended
  std::thread reader;
};

Status Handshake(Agent& agent, const std::string& key) {
  const std::string nonce = NewNonce();
  TARE_RETURN_IF_ERROR(agent.link->Send(FrameKind::kChallenge,
                                        json{{"nonce", nonce}, {"protocol", kFleetProtocol}}));
  TARE_TRY(const Frame frame, agent.link->Receive(kHelloPatience, kMostHandshakeBytes));
  const json hello = json::parse(frame.payload, nullptr, /*allow_exceptions=*/false);
  if (frame.kind != FrameKind::kHello || !hello.is_object()) {
    return Fail(ErrorKind::kCorrupt, "not a load agent");
  }
  try {
    if (!SameProof(hello.at("proof").get<std::string>(), Proof(key, "agent" + nonce))) {
      const char* why = "it does not know the key: give it the same --key-file";
      static_cast<void>(agent.link->Send(FrameKind::kError, json{{"message", why}}));
      return Fail(ErrorKind::kInvalidArgument, "{}", why);
    }
    if (hello.at("protocol").get<int>() != kFleetProtocol) {
      const char* why = "agent and coordinator are different versions of Tare";
      static_cast<void>(agent.link->Send(FrameKind::kError, json{{"message", why}}));
      return Fail(ErrorKind::kUnsupported, "{}", why);
    }
    agent.facts.name = hello.at("name").get<std::string>().substr(0, 200);
    agent.facts.pid = hello.at("pid").get<int>();
    agent.facts.cores = std::clamp(hello.at("cores").get<int>(), 1, 4096);
    return agent.link->Send(
        FrameKind::kWelcome,
        json{{"proof", Proof(key, "coordinator" + hello.at("nonce").get<std::string>())}});
  } catch (const json::exception&) {
    return Fail(ErrorKind::kCorrupt, "not a load agent");
  }
}

// The offset of the agent's clock by the ping of the shortest round trip.
Status SyncClock(Agent& agent) {
  agent.round_trip = Nanos::max();
  for (int i = 0; i < kPings; ++i) {
    const Nanos before = net::MonotonicNow();
    TARE_RETURN_IF_ERROR(agent.link->Send(FrameKind::kPing, json::object()));
    TARE_TRY(const json pong, agent.link->ReceiveJson(FrameKind::kPong, kAnswerPatience));
    const Nanos after = net::MonotonicNow();
    if (after - before >= agent.round_trip) continue;
    const auto it = pong.find("ns");
    if (it == pong.end() || !it->is_number_integer()) {
      return Fail(ErrorKind::kCorrupt, "a pong without a time");
    }
    agent.round_trip = after - before;
    agent.offset = Nanos(it->get<std::int64_t>()) - before - agent.round_trip / 2;
  }
  agent.facts.clock_offset_s = ToSeconds(agent.offset);
  agent.facts.clock_uncertainty_s = ToSeconds(agent.round_trip) / 2;
  return {};
}

// Until the result, an error or the connection's end.
void ReadRun(Agent& agent) {
  while (true) {
    const Result<Frame> frame = agent.link->Receive(Nanos(0));
    if (!frame) break;
    if (frame->kind == FrameKind::kResult) {
      agent.result = frame->payload;
      return;
    }
    if (frame->kind != FrameKind::kProgress) break;
    const json progress = json::parse(frame->payload, nullptr, /*allow_exceptions=*/false);
    const auto number = [&](const char* key) -> std::uint64_t {
      if (!progress.is_object()) return 0;
      const auto it = progress.find(key);
      return it != progress.end() && it->is_number_unsigned() ? it->get<std::uint64_t>() : 0;
    };
    agent.in_flight = number("in_flight");
    agent.ok = number("ok");
    agent.failed = number("failed");
    agent.tokens = number("tokens");
    agent.idle = number("idle") == 1;
  }
  agent.lost = true;
}

}  // namespace

struct Fleet::Impl {
  FleetOptions options;
  std::unique_ptr<Listener> listener;
  std::vector<ChildProcess> workers;
  std::vector<std::unique_ptr<Agent>> agents;
  std::vector<AgentFacts> facts;

  Status StartWorkers() {
    const std::string join = fmt::format("127.0.0.1:{}", listener->port());
    // The key goes by the environment: a command line is everybody's to read.
    ::setenv(kAgentKeyVariable, options.key.c_str(), 1);
    if (!options.api_key.empty()) ::setenv(kAgentApiKeyVariable, options.api_key.c_str(), 1);
    Status started;
    for (int i = 0; i < options.agents && started; ++i) {
      Result<ChildProcess> worker =
          ChildProcess::Start({options.worker_program, "load", "agent", "--join", join, "--name",
                               fmt::format("worker-{}", i + 1)});
      if (worker) {
        workers.push_back(*std::move(worker));
      } else {
        started = tl::unexpected(worker.error());
      }
    }
    ::unsetenv(kAgentKeyVariable);
    ::unsetenv(kAgentApiKeyVariable);
    return started;
  }

  Status Join() {
    const Nanos until = net::MonotonicNow() + options.patience;
    std::string refused;
    while (static_cast<int>(agents.size()) < options.agents) {
      const Nanos left = until - net::MonotonicNow();
      Result<std::unique_ptr<Link>> link =
          left > Nanos(0) ? listener->Accept(left) : Fail(ErrorKind::kDeadlineExceeded, "");
      if (!link) {
        return Fail(ErrorKind::kDeadlineExceeded,
                    "{} of {} agents joined within {:.0f} s{}; start them with: tare load agent "
                    "--join HOST:{} --key-file FILE",
                    agents.size(), options.agents, ToSeconds(options.patience),
                    refused.empty() ? "" : " (one was refused: " + refused + ")", listener->port());
      }
      auto agent = std::make_unique<Agent>();
      agent->link = *std::move(link);
      // A stranger at the door does not end the run.
      Status met = Handshake(*agent, options.key);
      if (met) met = SyncClock(*agent);
      if (!met) {
        refused = met.error().message;
        continue;
      }
      agents.push_back(std::move(agent));
    }
    return {};
  }
};

namespace {

class FleetSource final : public LoadSource {
 public:
  FleetSource(std::vector<std::unique_ptr<Agent>>* agents, std::vector<AgentFacts>* facts,
              Nanos start, Nanos window_begin, Nanos window_end)
      : agents_(agents),
        facts_(facts),
        start_(start),
        window_begin_(window_begin),
        window_end_(window_end) {
    for (const auto& agent : *agents_) {
      agent->reader = std::thread([a = agent.get()] { ReadRun(*a); });
    }
  }
  ~FleetSource() override {
    if (!finished_) Finish();
  }

  bool Idle() const override {
    return std::all_of(agents_->begin(), agents_->end(),
                       [](const auto& agent) { return agent->lost.load() || agent->idle.load(); });
  }
  void StopIssuing() override {
    for (const auto& agent : *agents_) {
      static_cast<void>(agent->link->Send(FrameKind::kStop, json::object()));
    }
  }
  Counts counts() const override {
    Counts counts;
    for (const auto& agent : *agents_) {
      counts.in_flight += agent->lost ? 0 : agent->in_flight.load();
      counts.ok += agent->ok;
      counts.failed += agent->failed;
      counts.tokens += agent->tokens;
    }
    return counts;
  }

  Recording Finish() override {
    finished_ = true;
    for (const auto& agent : *agents_) {
      static_cast<void>(agent->link->Send(FrameKind::kFinish, json::object()));
    }
    // An agent that does not answer must not hold the run: its connection is cut.
    std::atomic<bool> done{false};
    std::thread watch([&] {
      const Nanos until = net::MonotonicNow() + kResultPatience;
      while (!done && net::MonotonicNow() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      if (done) return;
      for (const auto& agent : *agents_) agent->link->Shut();
    });
    for (const auto& agent : *agents_) agent->reader.join();
    done = true;
    watch.join();

    Recording merged{Recorder(start_, window_begin_, window_end_), {}, {}, json::array()};
    double skew = 0;
    for (const auto& agent : *agents_) {
      Take(*agent, merged);
      AgentFacts& facts = agent->facts;
      facts.lost = agent->lost;
      skew = std::max(skew, facts.started_late_s + facts.clock_uncertainty_s);
      merged.agents.push_back({{"name", facts.name},
                               {"pid", facts.pid},
                               {"threads", facts.threads},
                               {"clock_offset_s", facts.clock_offset_s},
                               {"clock_uncertainty_s", facts.clock_uncertainty_s},
                               {"started_late_s", facts.started_late_s},
                               {"requests", facts.requests},
                               {"lost", facts.lost}});
      facts_->push_back(facts);
    }
    return merged;
  }

 private:
  // What the agent recorded, brought to our clock.
  static void Take(Agent& agent, Recording& merged) {
    if (agent.lost) return;
    ByteReader in(agent.result);
    const json facts = json::parse(in.Text(), nullptr, /*allow_exceptions=*/false);
    Result<Recording> recording = UnpackRecording(in.Rest());
    agent.result.clear();
    if (!recording || !facts.is_object()) {
      agent.lost = true;
      return;
    }
    if (const auto it = facts.find("late_s"); it != facts.end() && it->is_number()) {
      agent.facts.started_late_s = std::max(0.0, it->get<double>());
    }
    agent.facts.requests = recording->recorder.requests().size();
    recording->recorder.Shift(-agent.offset);
    merged.recorder.Merge(std::move(recording->recorder));
    merged.threads.insert(merged.threads.end(), recording->threads.begin(),
                          recording->threads.end());
    for (std::string& sample : recording->error_samples) {
      if (merged.error_samples.size() < 20) merged.error_samples.push_back(std::move(sample));
    }
  }

  std::vector<std::unique_ptr<Agent>>* agents_;
  std::vector<AgentFacts>* facts_;
  Nanos start_, window_begin_, window_end_;
  bool finished_ = false;
};

// How many of `users` belong to lanes [first, first + threads) of `lanes`.
std::uint64_t UsersOf(int users, int first, int threads, int lanes) {
  std::uint64_t count = 0;
  for (int lane = first; lane < first + threads; ++lane) {
    if (lane < users) count += static_cast<std::uint64_t>((users - lane + lanes - 1) / lanes);
  }
  return count;
}

}  // namespace

Fleet::Fleet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Fleet::~Fleet() {
  for (const auto& agent : impl_->agents) agent->link->Shut();
}

Result<std::unique_ptr<Fleet>> Fleet::Gather(FleetOptions options) {
  if (options.agents < 1 || options.agents > 1000) {
    return FailParam("agents", "{} agents are out of range; give 1 to 1000", options.agents);
  }
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  if (impl->options.key.empty()) {
    if (impl->options.worker_program.empty()) {
      return FailParam("key_file", "agents of other machines need a key: add --key-file FILE");
    }
    impl->options.key = NewNonce();
  }
  TARE_TRY(impl->listener, Listener::Open(impl->options.host, impl->options.port));
  if (!impl->options.worker_program.empty()) TARE_RETURN_IF_ERROR(impl->StartWorkers());
  TARE_RETURN_IF_ERROR(impl->Join());
  return std::unique_ptr<Fleet>(new Fleet(std::move(impl)));
}

Result<Fleet::Started> Fleet::Start(FleetJob job, int threads) {
  std::vector<std::unique_ptr<Agent>>& agents = impl_->agents;
  const int count = static_cast<int>(agents.size());
  const ArrivalSpec& arrival = job.plan.arrival;
  const bool closed = arrival.kind == ArrivalSpec::Kind::kClosed;
  if (closed && job.plan.requests > 0 &&
      job.plan.requests < static_cast<std::uint64_t>(arrival.users)) {
    return FailParam("requests",
                     "--requests {} is fewer than the {} users: with agents each user needs one",
                     job.plan.requests, arrival.users);
  }
  int lanes = 0;
  for (const auto& agent : agents) {
    if (agent->lost) {
      return Fail(ErrorKind::kUnavailable, "agent '{}' was lost in an earlier run",
                  agent->facts.name);
    }
    agent->facts.threads = std::clamp((threads + count - 1) / count, 1, agent->facts.cores);
    lanes += agent->facts.threads;
  }
  int first = 0;
  std::uint64_t users_dealt = 0, requests_dealt = 0;
  for (const auto& agent : agents) {
    AgentPart part;
    part.first_lane = first;
    part.lanes = lanes;
    part.threads = agent->facts.threads;
    part.requests = job.plan.requests;
    if (closed && job.plan.requests > 0) {
      // A share for each user; what does not divide goes to the earlier ones.
      users_dealt += UsersOf(arrival.users, first, part.threads, lanes);
      const std::uint64_t up_to =
          job.plan.requests * users_dealt / static_cast<std::uint64_t>(arrival.users);
      part.requests = up_to - requests_dealt;
      requests_dealt = up_to;
    }
    first += part.threads;
    TARE_RETURN_IF_ERROR(SyncClock(*agent));
    TARE_RETURN_IF_ERROR(agent->link->Send(FrameKind::kPlan, JobToJson(job, part)));
  }
  Nanos longest{0};
  for (const auto& agent : agents) {
    Result<json> ready = agent->link->ReceiveJson(FrameKind::kReady, kReadyPatience);
    if (!ready) return Context(ready.error(), "agent '{}'", agent->facts.name);
    longest = std::max(longest, agent->round_trip);
  }
  Started started;
  started.start = std::max(job.plan.start, net::MonotonicNow() + kLead + 4 * longest);
  const Nanos moved = started.start - job.plan.start;
  started.window_begin = job.plan.window_begin + moved;
  started.window_end =
      job.plan.window_end == Nanos::max() ? Nanos::max() : job.plan.window_end + moved;
  impl_->facts.clear();
  for (const auto& agent : agents) {
    const auto theirs = [&](Nanos t) { return (t + agent->offset).count(); };
    agent->in_flight = agent->ok = agent->failed = agent->tokens = 0;
    agent->idle = false;
    TARE_RETURN_IF_ERROR(agent->link->Send(
        FrameKind::kStart,
        json{{"start_ns", theirs(started.start)},
             {"window_begin_ns", theirs(started.window_begin)},
             {"window_end_ns", started.window_end == Nanos::max() ? Nanos::max().count()
                                                                  : theirs(started.window_end)}}));
  }
  started.source = std::make_unique<FleetSource>(&agents, &impl_->facts, started.start,
                                                 started.window_begin, started.window_end);
  return started;
}

const std::vector<AgentFacts>& Fleet::agents() const { return impl_->facts; }
std::uint16_t Fleet::port() const { return impl_->listener->port(); }

}  // namespace tare::load
