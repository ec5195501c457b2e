#include "advise/sim_validation.h"

#include <algorithm>
#include <cmath>

#include "load/local_server.h"
#include "load/runner.h"
#include "sim/replica_group.h"
#include "sim/simulate.h"

namespace tare::advise {
namespace {

using nlohmann::json;

// The targets of docs/SIMULATION.md.
constexpr double kThroughputTolerance = 0.10, kTpotTolerance = 0.10, kTtftTolerance = 0.20;

class Relay final : public load::ProgressSink {
 public:
  explicit Relay(const SimValidationOptions& options) : options_(options) {}
  void OnProgress(const load::LoadProgress&) override {}
  bool Cancelled() override { return options_.cancelled && options_.cancelled(); }

 private:
  const SimValidationOptions& options_;
};

Result<store::RunRecord> Measure(const SimValidationOptions& options,
                                 const load::LocalServer& server, int users, std::uint64_t seed) {
  load::LoadOptions load;
  load.url = server.url();
  load.name = fmt::format("simulation check, {} users", users);
  load.arrival.kind = load::ArrivalSpec::Kind::kClosed;
  load.arrival.users = users;
  load.workload.input_tokens = options.input_tokens;
  load.workload.output_tokens = options.output_tokens;
  load.workload.seed = seed;
  load.duration = options.duration;
  load.server_pid = server.pid();
  Relay relay(options);
  return load::RunLoad(load, &relay);
}

double InputTokens(const store::RunRecord& record) {
  const auto ok = static_cast<double>(std::max<std::uint64_t>(1, record.summary.ok));
  return static_cast<double>(record.summary.input_tokens) / ok;
}

struct Probe {
  int users = 0;
  store::RunRecord measured;
};

// The probes' leftovers: what their figures have more than the simulation's. The time of a request
// outside the steps is learnt from the first probe and holds for the others: with one user nothing
// queues, while with two the waiting for each other's prompts would be taken for it. What streaming
// takes is learnt number by number: it is not proportional to the streams, since the cores are
// shared and a step of many streams leaves them idle no longer than one of few.
Status LearnFromProbes(const SimValidationOptions& options, const std::vector<Probe>& probes,
                       sim::Calibration& calibration) {
  sim::StepCurve streaming;
  sim::Calibration known = calibration;
  for (const Probe& probe : probes) {
    TARE_TRY(const store::RunRecord like,
             SimulateLike(probe.measured, probe.users, options, known));
    const double tpot = probe.measured.summary.tpot.sent.p50 - like.summary.tpot.sent.p50;
    if (!std::isfinite(tpot)) continue;
    streaming.at.push_back(probe.users);
    streaming.seconds.push_back(std::max(0.0, tpot));
    const double ttft = probe.measured.summary.ttft.sent.p50 - like.summary.ttft.sent.p50;
    // Before its step a request is received and tokenised; what comes after belongs to both
    // directions, and only their sum can be seen from outside.
    if (streaming.at.size() == 1 && std::isfinite(ttft)) {
      known.request_seconds = std::max(0.0, ttft);
    }
  }
  if (streaming.at.empty()) return {};
  known.streaming = std::move(streaming);
  calibration = std::move(known);
  return {};
}

ComparedLoad Compare(int users, store::RunRecord measured, store::RunRecord simulated) {
  ComparedLoad load;
  load.users = users;
  const store::RunSummary &m = measured.summary, &s = simulated.summary;
  load.metrics = {
      {"output tokens/s", m.output_tokens_per_s, s.output_tokens_per_s, kThroughputTolerance},
      {"TPOT P50", m.tpot.sent.p50, s.tpot.sent.p50, kTpotTolerance},
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

Result<store::RunRecord> SimulateLike(const store::RunRecord& measured, int users,
                                      const SimValidationOptions& options,
                                      const sim::Calibration& calibration) {
  sim::SimPlan plan;
  plan.name = fmt::format("{} users, simulated", users);
  sim::ClusterSpec& cluster = plan.cluster;
  cluster.traffic.arrival.kind = load::ArrivalSpec::Kind::kClosed;
  cluster.traffic.arrival.users = users;
  cluster.traffic.seed = static_cast<std::uint64_t>(users);
  sim::TrafficClass kind;
  const double input = InputTokens(measured);
  kind.input_tokens = std::max(1, static_cast<int>(std::lround(input)));
  kind.output_tokens = options.output_tokens;
  const auto answers = static_cast<double>(std::max<std::uint64_t>(1, measured.summary.ok));
  kind.shared_prefix =
      std::clamp(static_cast<double>(measured.summary.cached_tokens) / answers / input, 0.0, 1.0);
  cluster.traffic.classes = {kind};
  cluster.duration = options.duration;
  cluster.warm_up = load::DefaultWarmUp(options.duration);

  sim::ReplicaPlan replica;
  replica.name = "engine";
  TARE_TRY(sim::BuiltGroup group,
           sim::GroupOfCalibration(replica, calibration, kind.input_tokens + kind.output_tokens));
  cluster.groups = {std::move(group.spec)};
  plan.facts = {std::move(group.facts)};
  TARE_TRY(sim::Simulation simulation, sim::Simulate(plan, nullptr));
  return std::move(simulation.record);
}

Result<SimValidation> ValidateSimulation(const SimValidationOptions& options) {
  const auto tell = [&](const std::string& what) {
    if (options.on_progress) options.on_progress(what);
  };
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
    tell(fmt::format("probe, {} users", users));
    TARE_TRY(store::RunRecord measured, Measure(options, server, users, seed++));
    probes.push_back({users, std::move(measured)});
  }
  TARE_RETURN_IF_ERROR(LearnFromProbes(options, probes, validation.calibration));
  for (const int users : options.users) {
    tell(fmt::format("{} users", users));
    TARE_TRY(store::RunRecord measured, Measure(options, server, users, seed++));
    TARE_TRY(store::RunRecord simulated,
             SimulateLike(measured, users, options, validation.calibration));
    validation.loads.push_back(Compare(users, std::move(measured), std::move(simulated)));
  }
  // What was measured stands, however the server ends.
  if (const Status stopped = server.Stop(); !stopped) tell(stopped.error().message);
  return validation;
}

json ToJson(const SimValidation& validation) {
  json loads = json::array();
  for (const ComparedLoad& load : validation.loads) {
    json metrics = json::array();
    for (const ComparedMetric& metric : load.metrics) {
      metrics.push_back({{"name", metric.name},
                         {"measured", metric.measured},
                         {"simulated", metric.simulated},
                         {"error", metric.error()},
                         {"tolerance", metric.tolerance},
                         {"ok", metric.ok()}});
    }
    loads.push_back({{"users", load.users},
                     {"measured_valid", load.measured.valid},
                     {"metrics", std::move(metrics)}});
  }
  json calibration = sim::ToJson(validation.calibration);
  calibration.erase("points");
  return {{"ok", validation.ok()},
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
      "outside the steps: {:.2f} ms a request; streaming adds {} ms a step\n\n"
      "  {:>5}  {:<18}{:>12}{:>12}{:>9}{:>8}\n",
      c.model, c.dtype, c.cpu, c.threads, 100 * c.left_out.median, 100 * c.left_out.worst,
      c.left_out.worst_what, 1e3 * c.request_seconds, Streaming(c.streaming), "users", "",
      "measured", "simulated", "error", "within");
  for (const ComparedLoad& load : validation.loads) {
    for (const ComparedMetric& metric : load.metrics) {
      const bool rate = metric.name.find("/s") != std::string::npos;
      const auto show = [&](double value) {
        if (std::isnan(value)) return std::string("–");
        return rate ? fmt::format("{:.1f}", value) : fmt::format("{:.2f} ms", 1e3 * value);
      };
      if (std::isnan(metric.measured)) {
        out += fmt::format("  {:>5}  {:<18}{:>12}  too few answers: give a longer --duration\n",
                           load.users, metric.name, show(metric.measured));
        continue;
      }
      out += fmt::format("  {:>5}  {:<18}{:>12}{:>12}{:>+8.1f}%{:>7.0f}%  {}\n", load.users,
                         metric.name, show(metric.measured), show(metric.simulated),
                         100 * metric.error(), 100 * metric.tolerance, metric.ok() ? "✔" : "✘");
    }
    if (!load.measured.valid) {
      for (const store::ValidityCheck& check : load.measured.checks) {
        if (!check.ok) out += fmt::format("         measured run invalid: {}\n", check.detail);
      }
    }
  }
  std::string missed;
  int judged = 0, kept = 0;
  for (const ComparedLoad& load : validation.loads) {
    for (const ComparedMetric& metric : load.metrics) {
      if (std::isnan(metric.measured)) continue;
      ++judged;
      kept += metric.ok() ? 1 : 0;
      if (metric.ok()) continue;
      missed +=
          fmt::format("{}{} of {} users by {:+.0f} % (within {:.0f} %)", missed.empty() ? "" : ", ",
                      metric.name, load.users, 100 * metric.error(), 100 * metric.tolerance);
    }
  }
  out += fmt::format("\n{} of {} figures within their tolerance{}\n", kept, judged,
                     missed.empty() ? "" : "; missed: " + missed);
  return out;
}

}  // namespace tare::advise
