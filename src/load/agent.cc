// The agent's side of the fleet: RunAgent of fleet.h.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "load/byte_stream.h"
#include "load/fleet.h"
#include "load/fleet_wire.h"
#include "load/frame.h"
#include "load/prompts.h"
#include "load/recording_wire.h"
#include "load/trace.h"

namespace tare::load {
namespace {

using nlohmann::json;

constexpr Nanos kTick = std::chrono::milliseconds(100);
constexpr Nanos kAnswerPatience = std::chrono::seconds(30);

std::string MachineName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "agent";
  return name.data();
}

std::string TextOf(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

Status SayWhy(Link& link, const Error& error) {
  return link.Send(FrameKind::kError, json{{"message", error.message}});
}

Result<std::unique_ptr<Link>> Join(const AgentOptions& options) {
  const Nanos until = net::MonotonicNow() + options.patience;
  while (true) {
    Result<std::unique_ptr<Link>> link =
        Link::Connect(options.host, options.port, std::chrono::seconds(5));
    if (link || net::MonotonicNow() >= until) return link;
    std::this_thread::sleep_for(kTick);  // the coordinator may start later
  }
}

Status Introduce(Link& link, const AgentOptions& options) {
  TARE_TRY(const json challenge, link.ReceiveJson(FrameKind::kChallenge, kAnswerPatience));
  const std::string nonce = NewNonce();
  TARE_RETURN_IF_ERROR(link.Send(
      FrameKind::kHello, json{{"proof", Proof(options.key, "agent" + TextOf(challenge, "nonce"))},
                              {"nonce", nonce},
                              {"protocol", kFleetProtocol},
                              {"name", options.name.empty() ? MachineName() : options.name},
                              {"pid", ::getpid()},
                              {"cores", std::max(1u, std::thread::hardware_concurrency())}}));
  TARE_TRY(const json welcome, link.ReceiveJson(FrameKind::kWelcome, kAnswerPatience));
  // An agent sends load wherever it is told: it must know by whom.
  if (!SameProof(TextOf(welcome, "proof"), Proof(options.key, "coordinator" + nonce))) {
    return Fail(ErrorKind::kInvalidArgument, "the coordinator does not know the key");
  }
  return {};
}

Status ServeRun(Link& link, const json& plan, const AgentOptions& options) {
  AgentPart part;
  Result<FleetJob> job = JobFromJson(plan, part);
  if (!job) return SayWhy(link, job.error());
  if (!options.api_key.empty()) {
    job->shape.headers.push_back({"Authorization", "Bearer " + options.api_key});
  }
  Result<PromptsAndTrace> prompts = MakePrompts(job->plan.arrival, job->workload, job->calibration);
  if (!prompts) return SayWhy(link, prompts.error());
  job->plan.prompts = prompts->prompts.get();
  job->plan.trace = prompts->trace;
  TARE_RETURN_IF_ERROR(link.Send(FrameKind::kReady, json::object()));

  TARE_TRY(const json start, link.ReceiveJson(FrameKind::kStart, kAnswerPatience * 20));
  const auto time = [&](const char* key) {
    const auto it = start.find(key);
    return Nanos(it != start.end() && it->is_number_integer() ? it->get<std::int64_t>() : 0);
  };
  job->plan.start = time("start_ns");
  job->plan.window_begin = time("window_begin_ns");
  job->plan.window_end = time("window_end_ns");
  TARE_TRY(const std::unique_ptr<Generator> generator, Generator::Start(job->plan, job->shape));
  const double late = std::max(0.0, ToSeconds(net::MonotonicNow() - job->plan.start));

  while (true) {
    if (link.Readable(kTick)) {
      // When the coordinator is gone nobody wants the load any more: the error ends the run.
      TARE_TRY(const Frame frame, link.Receive(kAnswerPatience));
      if (frame.kind == FrameKind::kStop) generator->StopIssuing();
      if (frame.kind == FrameKind::kFinish) break;
    }
    const LoadSource::Counts counts = generator->counts();
    TARE_RETURN_IF_ERROR(
        link.Send(FrameKind::kProgress, json{{"in_flight", counts.in_flight},
                                             {"ok", counts.ok},
                                             {"failed", counts.failed},
                                             {"tokens", counts.tokens},
                                             {"idle", generator->Idle() ? 1 : 0}}));
  }
  const LoadSource::Recording recording = generator->Finish();
  ByteWriter out;
  out.PutText(json{{"late_s", late}}.dump());
  return link.Send(FrameKind::kResult, std::string_view(out.Take() + PackRecording(recording)));
}

}  // namespace

Status RunAgent(const AgentOptions& options) {
  if (options.key.empty()) {
    return FailParam("key_file", "an agent needs the coordinator's key: add --key-file FILE");
  }
  RaiseFileLimit();
  TARE_TRY(const std::unique_ptr<Link> link, Join(options));
  TARE_RETURN_IF_ERROR(Introduce(*link, options));
  while (true) {
    const Result<Frame> frame = link->Receive(Nanos(0));
    if (!frame) return {};  // the coordinator has hung up: its work is done
    if (frame->kind == FrameKind::kPing) {
      TARE_RETURN_IF_ERROR(link->Send(FrameKind::kPong, json{{"ns", net::MonotonicNow().count()}}));
    } else if (frame->kind == FrameKind::kPlan) {
      TARE_RETURN_IF_ERROR(ServeRun(
          *link, json::parse(frame->payload, nullptr, /*allow_exceptions=*/false), options));
    } else {
      return Fail(ErrorKind::kCorrupt, "the coordinator said something unexpected");
    }
  }
}

}  // namespace tare::load
