#include "advise/sim_validation.h"

#include <algorithm>
#include <cmath>

#include "base/files.h"
#include "load/figures.h"
#include "load/local_server.h"
#include "load/runner.h"
#include "load/trace.h"
#include "sim/replica_group.h"
#include "sim/simulate.h"

namespace tare::advise {
namespace {

using nlohmann::json;

// The targets of docs/SIMULATION.md.
constexpr double kThroughputTolerance = 0.10, kTpotTolerance = 0.10, kTtftTolerance = 0.20;

// Left-out error of step times above which they are more noise than steps: 15 % on a quiet machine
// (Sapphire Rapids, 2026-11-30), 60 % beside compilers.
constexpr double kNoisyCalibration = 0.30;

class Relay final : public load::ProgressSink {
 public:
  explicit Relay(const SimValidationOptions& options) : options_(options) {}
  void OnProgress(const load::LoadProgress&) override {}
  bool Cancelled() override { return options_.cancelled && options_.cancelled(); }

 private:
  const SimValidationOptions& options_;
};

// A load as the load tester takes it, and as the simulation does.
struct Load {
  std::string name;
  int users = 0;  // 0: an open loop
  double rate = 0;
  Nanos duration{};
  std::filesystem::path trace;  // of an open loop
};

Result<store::RunRecord> Measure(const SimValidationOptions& options,
                                 const load::LocalServer& server, const Load& one,
                                 std::uint64_t seed) {
  load::LoadOptions load;
  load.url = server.url();
  load.name = "simulation check, " + one.name;
  if (one.users > 0) {
    load.arrival.kind = load::ArrivalSpec::Kind::kClosed;
    load.arrival.users = one.users;
  } else {
    load.arrival.kind = load::ArrivalSpec::Kind::kTrace;
    load.arrival.trace = one.trace;
  }
  load.workload.input_tokens = options.input_tokens;
  load.workload.output_tokens = options.output_tokens;
  load.workload.seed = seed;
  load.duration = one.duration;
  load.server_pid = server.pid();
  Relay relay(options);
  return load::RunLoad(load, &relay);
}

double PerAnswer(std::uint64_t sum, const store::RunRecord& record) {
  return static_cast<double>(sum) /
         static_cast<double>(std::max<std::uint64_t>(1, record.summary.ok));
}

Result<store::RunRecord> Simulate(const sim::TrafficSpec& traffic, Nanos duration,
                                  const sim::Calibration& calibration) {
  sim::SimPlan plan;
  plan.name = "simulation check";
  sim::ClusterSpec& cluster = plan.cluster;
  cluster.traffic = traffic;
  cluster.duration = duration;
  cluster.warm_up = load::DefaultWarmUp(duration);
  TARE_TRY(const sim::Traffic requests, sim::Traffic::Create(traffic));
  sim::ReplicaPlan replica;
  replica.name = "engine";
  TARE_TRY(sim::BuiltGroup group,
           sim::GroupOfCalibration(replica, calibration, requests.LongestSequence()));
  cluster.groups = {std::move(group.spec)};
  plan.facts = {std::move(group.facts)};
  TARE_TRY(sim::Simulation simulation, sim::Simulate(plan, nullptr));
  return std::move(simulation.record);
}

// What of a closed loop's prompts the server counted, and found in its cache.
sim::TrafficClass ClassLike(const store::RunRecord& measured, int output_tokens) {
  sim::TrafficClass kind;
  const double input = PerAnswer(measured.summary.input_tokens, measured);
  kind.input_tokens = std::max(1, static_cast<int>(std::lround(input)));
  kind.output_tokens = output_tokens;
  kind.shared_prefix = std::clamp(
      PerAnswer(measured.summary.cached_tokens, measured) / std::max(1.0, input), 0.0, 1.0);
  return kind;
}

// The load of a measured run, simulated: the same users, or the same requests at the same times;
// lengths and shared beginnings as the server counted them.
Result<store::RunRecord> SimulateLike(const store::RunRecord& measured, const Load& load,
                                      const SimValidationOptions& options,
                                      const sim::Calibration& calibration) {
  sim::TrafficSpec traffic;
  if (load.users > 0) {
    traffic.arrival.kind = load::ArrivalSpec::Kind::kClosed;
    traffic.arrival.users = load.users;
    traffic.seed = static_cast<std::uint64_t>(load.users);
    traffic.classes = {ClassLike(measured, options.output_tokens)};
  } else {
    traffic.arrival.kind = load::ArrivalSpec::Kind::kTrace;
    traffic.arrival.trace = load.trace;
    const json told = measured.workload.value("/fidelity/input_tokens_told_to_wanted"_json_pointer,
                                              json(nullptr));
    traffic.input_scale = told.is_number() ? told.get<double>() : 1;
    traffic.shared_tokens =
        static_cast<int>(std::lround(PerAnswer(measured.summary.cached_tokens, measured)));
  }
  return Simulate(traffic, load.duration, calibration);
}

// Requests a second of as many users as the engine takes sequences, each asking again at once.
Result<double> Capacity(const SimValidationOptions& options, const store::RunRecord& probe,
                        const sim::Calibration& calibration) {
  constexpr Nanos kLongEnough = std::chrono::minutes(5);  // of virtual time
  sim::TrafficSpec traffic;
  traffic.arrival.kind = load::ArrivalSpec::Kind::kClosed;
  traffic.arrival.users = calibration.max_num_seqs;
  traffic.classes = {ClassLike(probe, options.output_tokens)};
  traffic.classes[0].length_cv = options.length_cv;
  TARE_TRY(const store::RunRecord full, Simulate(traffic, kLongEnough, calibration));
  return full.summary.requests_per_s;
}

// Draws the requests of an open loop and keeps them where both sides read them.
Result<Load> DrawLoad(const SimValidationOptions& options, double share, double capacity,
                      std::uint64_t seed) {
  Load load;
  load.rate = share * capacity;
  load.name = fmt::format("{:.0f} %, {:.2f}/s", 100 * share, load.rate);
  load.duration = options.duration;
  load.trace = options.folder / fmt::format("load-{:.0f}.jsonl", 100 * share);
  sim::TrafficSpec traffic;
  traffic.arrival.kind = load::ArrivalSpec::Kind::kPoisson;
  traffic.arrival.rate = load.rate;
  traffic.seed = seed;
  sim::TrafficClass kind;
  kind.input_tokens = options.input_tokens;
  kind.output_tokens = options.output_tokens;
  kind.length_cv = options.length_cv;
  traffic.classes = {kind};
  // Some seconds more than the run takes, so that it ends by its clock and not by the trace.
  constexpr Nanos kMore = std::chrono::seconds(10);
  TARE_TRY(const load::Trace trace,
           sim::TraceOf(traffic, load::DefaultWarmUp(load.duration) + load.duration + kMore,
                        load.trace.filename().string()));
  TARE_RETURN_IF_ERROR(WriteFileAtomic(load.trace, load::FormatTrace(trace)));
  return load;
}

Load ClosedLoad(int users, Nanos duration) {
  Load load;
  load.name = fmt::format("{} user{}", users, users == 1 ? "" : "s");
  load.users = users;
  load.duration = duration;
  return load;
}

struct Probe {
  Load load;
  store::RunRecord measured;
};

// The nearest values that never fall (pool adjacent violators): more streams never take less, and a
// curve that falls would make steps of negative length beyond its end.
std::vector<double> NeverFalling(const std::vector<double>& values) {
  struct Pool {
    double sum = 0;
    std::size_t count = 0;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Pool> pools;
  for (const double value : values) {
    pools.push_back({value, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().sum += last.sum;
      pools.back().count += last.count;
    }
  }
  std::vector<double> out;
  for (const Pool& pool : pools) out.insert(out.end(), pool.count, pool.mean());
  return out;
}

// The probes' leftovers: what their figures have more than the simulation's. The time of a request
// outside the steps is learnt from the first probe and holds for the others: with one user nothing
// queues, while with two the waiting for each other's prompts would be taken for it. What streaming
// takes is learnt number by number: it is not proportional to the streams, since the cores are
// shared and a step of many streams leaves them idle no longer than one of few. It is learnt from
// the median gap between two tokens, which is a step without a prompt: the time per token of whole
// answers also holds the others' prompts, and how many of them depends on the users' order.
Status LearnFromProbes(const SimValidationOptions& options, const std::vector<Probe>& probes,
                       sim::Calibration& calibration) {
  sim::StepCurve streaming;
  sim::Calibration known = calibration;
  for (const Probe& probe : probes) {
    TARE_TRY(const store::RunRecord like, SimulateLike(probe.measured, probe.load, options, known));
    const double gap = probe.measured.summary.itl.sent.p50 - like.summary.itl.sent.p50;
    if (!std::isfinite(gap)) continue;
    streaming.at.push_back(probe.load.users);
    streaming.seconds.push_back(std::max(0.0, gap));
    const double ttft = probe.measured.summary.ttft.sent.p50 - like.summary.ttft.sent.p50;
    // Before its step a request is received and tokenised; what comes after belongs to both
    // directions, and only their sum can be seen from outside.
    if (streaming.at.size() == 1 && std::isfinite(ttft)) {
      known.request_seconds = std::max(0.0, ttft);
    }
  }
  if (streaming.at.empty()) return {};
  streaming.seconds = NeverFalling(streaming.seconds);
  known.streaming = std::move(streaming);
  calibration = std::move(known);
  return {};
}

ComparedLoad Compare(const Load& of, store::RunRecord measured, store::RunRecord simulated) {
  ComparedLoad load;
  load.name = of.name;
  load.users = of.users;
  load.rate = of.rate;
  const store::RunSummary &m = measured.summary, &s = simulated.summary;
  load.metrics = {
      {"output tokens/s", m.output_tokens_per_s, s.output_tokens_per_s, kThroughputTolerance},
      {"TPOT P50", m.tpot.sent.p50, s.tpot.sent.p50, kTpotTolerance},
      {"TTFT P50", m.ttft.sent.p50, s.ttft.sent.p50, 0},
      {"TTFT P90", m.ttft.sent.p90, s.ttft.sent.p90, kTtftTolerance},
  };
  load.measured = std::move(measured);
  load.simulated = std::move(simulated);
  return load;
}

}  // namespace

bool SimValidation::ok() const {
  return std::all_of(loads.begin(), loads.end(), [](const ComparedLoad& load) {
    return load.measured.valid &&
           std::all_of(load.metrics.begin(), load.metrics.end(),
                       [](const ComparedMetric& metric) { return metric.ok(); });
  });
}

Result<SimValidation> ValidateSimulation(const SimValidationOptions& options) {
  const auto tell = [&](const std::string& what) {
    if (options.on_progress) options.on_progress(what);
  };
  if (options.probe_users.empty()) {
    return FailParam("probe_users", "at least one load is needed to learn from");
  }
  SimValidation validation;
  validation.calibration = options.calibration;
  load::LocalServerOptions server_options;
  // What drafts spare depends on the text, which a simulation does not know.
  server_options.command = {options.program, "serve", options.model.string(), "--port", "0",
                            "--speculate",   "off"};
  server_options.command.insert(server_options.command.end(), options.serve_flags.begin(),
                                options.serve_flags.end());
  server_options.log = options.server_log;
  server_options.cancelled = options.cancelled;
  tell("starting the server");
  TARE_TRY(load::LocalServer server, load::LocalServer::Start(server_options));
  // Another one for every load: prompts of an earlier one would be found in the prefix cache.
  std::uint64_t seed = 1;
  std::vector<Probe> probes;
  for (const int users : options.probe_users) {
    const Load load = ClosedLoad(users, options.probe_duration);
    tell("probe, " + load.name);
    TARE_TRY(store::RunRecord measured, Measure(options, server, load, seed++));
    probes.push_back({load, std::move(measured)});
  }
  TARE_RETURN_IF_ERROR(LearnFromProbes(options, probes, validation.calibration));
  TARE_TRY(validation.capacity, Capacity(options, probes.front().measured, validation.calibration));
  std::vector<Load> loads;
  for (const double share : options.loads) {
    TARE_TRY(loads.emplace_back(), DrawLoad(options, share, validation.capacity, seed++));
  }
  for (const int users : options.users) loads.push_back(ClosedLoad(users, options.duration));
  for (const Load& load : loads) {
    tell(load.name);
    TARE_TRY(store::RunRecord measured, Measure(options, server, load, seed++));
    TARE_TRY(store::RunRecord simulated,
             SimulateLike(measured, load, options, validation.calibration));
    validation.loads.push_back(Compare(load, std::move(measured), std::move(simulated)));
  }
  // What was measured stands, however the server ends.
  if (const Status stopped = server.Stop(); !stopped) tell(stopped.error().message);
  return validation;
}

namespace {

// The distribution, not only a percentile of it: deciles of the measured requests, seconds.
json FirstTokens(const store::RunRecord& record) {
  const json requests = record.series.value("requests", json::object());
  const json times = requests.value("ttft_s", json::array());
  const json measured = requests.value("measured", json::array());
  std::vector<double> values;
  for (std::size_t i = 0; i < times.size() && i < measured.size(); ++i) {
    if (measured[i] == 1 && times[i].is_number()) values.push_back(times[i].get<double>());
  }
  std::sort(values.begin(), values.end());
  json deciles = json::array();
  for (int tenth = 1; tenth <= 9 && !values.empty(); ++tenth) {
    deciles.push_back(load::SortedQuantile(values, tenth / 10.0));
  }
  return deciles;
}

}  // namespace

json ToJson(const SimValidation& validation) {
  json loads = json::array();
  for (const ComparedLoad& load : validation.loads) {
    json metrics = json::array();
    for (const ComparedMetric& metric : load.metrics) {
      metrics.push_back({{"name", metric.name},
                         {"measured", metric.measured},
                         {"simulated", metric.simulated},
                         {"error", metric.error()},
                         {"tolerance", metric.judged() ? json(metric.tolerance) : json(nullptr)},
                         {"ok", metric.ok()}});
    }
    loads.push_back(
        {{"name", load.name},
         {"users", load.users},
         {"rate", load.rate},
         {"first_tokens",
          {{"measured", FirstTokens(load.measured)}, {"simulated", FirstTokens(load.simulated)}}},
         {"measured_valid", load.measured.valid},
         {"metrics", std::move(metrics)}});
  }
  json calibration = sim::ToJson(validation.calibration);
  calibration.erase("points");
  return {{"ok", validation.ok()},
          {"capacity_per_s", validation.capacity},
          {"calibration", std::move(calibration)},
          {"loads", std::move(loads)}};
}

namespace {

// "0.77 (2 streams), 1.1 (6)"
std::string Streaming(const sim::StepCurve& curve) {
  std::string text;
  for (std::size_t i = 0; i < curve.at.size(); ++i) {
    text += fmt::format("{}{:.2f} ({}{})", i > 0 ? ", " : "", 1e3 * curve.seconds[i], curve.at[i],
                        i == 0 ? " streams" : "");
  }
  return text;
}

}  // namespace

std::string Table(const SimValidation& validation) {
  const sim::Calibration& c = validation.calibration;
  std::string out = fmt::format(
      "{} ({}) on {}, {} threads\n"
      "step times: left out median error {:.1f} %, worst {:.1f} % ({})\n"
      "outside the steps: {:.2f} ms a request; streaming adds {} ms a step\n"
      "capacity, simulated: {:.2f} requests/s with {} at once\n\n"
      "  {:<14}  {:<18}{:>12}{:>12}{:>9}{:>8}\n",
      c.model, c.dtype, c.cpu, c.threads, 100 * c.left_out.median, 100 * c.left_out.worst,
      c.left_out.worst_what, 1e3 * c.request_seconds, Streaming(c.streaming), validation.capacity,
      c.max_num_seqs, "load", "", "measured", "simulated", "error", "within");
  int unjudged = 0;
  for (const ComparedLoad& load : validation.loads) {
    // An invalid run's figures are none; beside simulated ones they would only look like errors.
    if (!load.measured.valid) {
      ++unjudged;
      for (const store::ValidityCheck& check : load.measured.checks) {
        if (!check.ok) out += fmt::format("  {:<14}  not judged: {}\n", load.name, check.detail);
      }
      continue;
    }
    for (const ComparedMetric& metric : load.metrics) {
      const bool rate = metric.name.find("/s") != std::string::npos;
      const auto show = [&](double value) {
        if (std::isnan(value)) return std::string("–");
        return rate ? fmt::format("{:.1f}", value) : fmt::format("{:.2f} ms", 1e3 * value);
      };
      if (std::isnan(metric.measured)) {
        out += fmt::format("  {:<14}  {:<18}{:>12}  too few answers: give a longer --duration\n",
                           load.name, metric.name, show(metric.measured));
        continue;
      }
      out += fmt::format("  {:<14}  {:<18}{:>12}{:>12}{:>+8.1f}%", load.name, metric.name,
                         show(metric.measured), show(metric.simulated), 100 * metric.error());
      if (metric.judged()) {
        out += fmt::format("{:>7.0f}%  {}", 100 * metric.tolerance, metric.ok() ? "✔" : "✘");
      }
      out += "\n";
    }
  }
  std::string missed;
  int judged = 0, kept = 0;
  for (const ComparedLoad& load : validation.loads) {
    if (!load.measured.valid) continue;
    for (const ComparedMetric& metric : load.metrics) {
      if (std::isnan(metric.measured) || !metric.judged()) continue;
      ++judged;
      kept += metric.ok() ? 1 : 0;
      if (metric.ok()) continue;
      missed += fmt::format("{}{} at {} by {:+.0f} % (within {:.0f} %)", missed.empty() ? "" : ", ",
                            metric.name, load.name, 100 * metric.error(), 100 * metric.tolerance);
    }
  }
  out += fmt::format("\n{} of {} figures within their tolerance{}\n", kept, judged,
                     missed.empty() ? "" : "; missed: " + missed);
  if (unjudged > 0) {
    out += fmt::format("{} of {} loads could not be judged: their measured runs are invalid\n",
                       unjudged, validation.loads.size());
  }
  if (c.left_out.median > kNoisyCalibration) {
    out += fmt::format(
        "the step times do not fit one another ({:.0f} % in the median): was the machine busy? "
        "then "
        "the comparison says nothing\n",
        100 * c.left_out.median);
  }
  return out;
}

}  // namespace tare::advise
