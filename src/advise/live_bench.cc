#include "advise/live_bench.h"

#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "advise/candidate_command.h"
#include "advise/cpu_use.h"
#include "advise/machine.h"
#include "advise/simulated.h"

namespace tare::advise {
namespace {

// A file name of any candidate name.
std::string FileStem(const std::string& name) {
  std::string stem;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_';
    stem += plain ? c : '_';
  }
  return stem;
}

class Relay final : public load::ProgressSink {
 public:
  explicit Relay(const LiveBenchOptions& options) : options_(options) {}
  void OnProgress(const load::LoadProgress& progress) override {
    if (options_.on_progress) options_.on_progress(progress);
  }
  bool Cancelled() override { return options_.cancelled && options_.cancelled(); }

 private:
  const LiveBenchOptions& options_;
};

}  // namespace

load::LoadOptions LoadOptionsFor(const Candidate& candidate, const LoadPlan& load, double level,
                                 int round) {
  load::LoadOptions options;
  options.url = candidate.url;
  options.model = candidate.served_model;
  if (load.open_loop) {
    options.arrival.kind = load::ArrivalSpec::Kind::kPoisson;
    options.arrival.rate = level;
  } else {
    options.arrival.kind = load::ArrivalSpec::Kind::kClosed;
    options.arrival.users = static_cast<int>(level);
  }
  options.workload.input_tokens = load.input_tokens;
  options.workload.output_tokens = load.output_tokens;
  options.workload.dataset = load.dataset;
  options.workload.shared_prefix = load.shared_prefix;
  // The same prompts for every candidate; others in every round and at every level, so that no
  // prefix cache has seen them.
  options.workload.seed = load.seed * 1'000'003 + static_cast<std::uint64_t>(round) * 1009 +
                          static_cast<std::uint64_t>(level * 1000);
  if (options.workload.seed == 0) options.workload.seed = 1;
  options.duration = load.duration;
  options.requests = load.requests;
  options.warm_up = load.warm_up;
  return options;
}

LiveBench::LiveBench(LiveBenchOptions options, store::RunStore store)
    : options_(std::move(options)), store_(std::move(store)) {}

Result<std::optional<double>> LiveBench::Open(const Candidate& candidate, int round) {
  if (candidate.kind != Candidate::Kind::kLocal) return std::nullopt;
  load::LocalServerOptions options;
  options.command = ServeCommand(options_.program, candidate, 0);
  std::error_code code;
  std::filesystem::create_directories(options_.log_dir, code);
  options.log = options_.log_dir / fmt::format("{}-r{}.log", FileStem(candidate.name), round + 1);
  options.cancelled = options_.cancelled;
  auto server = load::LocalServer::Start(options);
  if (!server) return Context(std::move(server).error(), "candidate '{}'", candidate.name);
  server_ = std::move(*server);
  return ToSeconds(server_->time_to_ready());
}

Result<store::RunRecord> LiveBench::Measure(const Candidate& candidate, const LoadPlan& load,
                                            double level, int round) {
  if (candidate.kind == Candidate::Kind::kSimulated) {
    auto simulated = SimulateLevel(candidate, load, level, round, options_.cancelled);
    if (!simulated) {
      return Context(std::move(simulated).error(), "candidate '{}'", candidate.name);
    }
    simulated->name = fmt::format("{}: {}, {}, round {}", options_.plan_name, candidate.name,
                                  DescribeLevel(load, level), round + 1);
    TARE_TRY(simulated->id, store_.Save(*simulated));
    return simulated;
  }
  load::LoadOptions options = LoadOptionsFor(candidate, load, level, round);
  options.name = fmt::format("{}: {}, {}, round {}", options_.plan_name, candidate.name,
                             DescribeLevel(load, level), round + 1);
  options.target_facts = {{"candidate", candidate.name}, {"machine", ToJson(ThisMachine())}};
  if (server_) {
    options.url = server_->url();
    options.server_pid = server_->pid();
    options.target_facts["flags"] = ServeFlags(candidate);
  }
  if (!candidate.api_key_env.empty()) {
    const char* key = std::getenv(candidate.api_key_env.c_str());
    if (key == nullptr || *key == '\0') {
      return Fail(ErrorKind::kNotFound, "candidate '{}': the environment variable {} is not set",
                  candidate.name, candidate.api_key_env);
    }
    options.api_key = key;
  }
  Relay relay(options_);
  std::vector<int> ours = {static_cast<int>(::getpid())};
  if (server_) ours.push_back(server_->pid());
  const auto cpu_before = ReadCpu(ours);
  auto record = load::RunLoad(options, &relay);
  const auto cpu_after = ReadCpu(ours);
  if (!record) return Context(std::move(record).error(), "candidate '{}'", candidate.name);
  if (server_ && !server_->running()) {
    return Fail(ErrorKind::kUnavailable, "candidate '{}': {}", candidate.name,
                server_->DescribeEnd("the server died while it was measured"));
  }
  // Only for servers on this machine does it matter what else ran here.
  if (server_ && cpu_before && cpu_after) {
    if (const auto others = OthersShare(*cpu_before, *cpu_after)) {
      record->target[kOthersShareKey] = *others;
    }
  }
  TARE_TRY(record->id, store_.Save(*record));
  return record;
}

Status LiveBench::Close(const Candidate& candidate) {
  if (!server_) return {};
  Status stopped = server_->Stop();
  server_.reset();
  if (!stopped) return Context(std::move(stopped).error(), "candidate '{}'", candidate.name);
  return {};
}

Result<std::vector<store::RunRecord>> LiveBench::Stored(const Candidate& candidate) {
  std::vector<store::RunRecord> records;
  for (const std::string& run : candidate.runs) {
    auto record = store_.Load(run);
    if (!record) return Context(std::move(record).error(), "candidate '{}'", candidate.name);
    records.push_back(std::move(*record));
  }
  return records;
}

}  // namespace tare::advise
