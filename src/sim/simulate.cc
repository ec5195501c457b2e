#include "sim/simulate.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/clock.h"
#include "base/rfc3339.h"

namespace tare::sim {
namespace {

using nlohmann::json;

// The same shares the load tester judges a run by.
constexpr double kMostErrorShare = 0.05;
constexpr double kLeastAchievedShare = 0.95;

double DollarsOf(const GroupFacts& facts, const GroupOutcome& outcome) {
  return facts.usd_per_hour * outcome.replica_seconds / 3600;
}

json GroupJson(const GroupFacts& facts, const GroupSpec& spec, const GroupOutcome& o,
               double window_s) {
  const auto share = [](double part, double whole) {
    return whole > 0 ? json(part / whole) : json(nullptr);
  };
  return {{"name", facts.name},
          {"model", facts.model},
          {"device", facts.device},
          {"devices", facts.devices},
          {"weights", facts.weights},
          {"cache", facts.cache},
          {"replicas", spec.replicas},
          {"most_replicas", o.most_replicas},
          {"weight", spec.weight},
          {"max_num_seqs", spec.scheduler.max_num_seqs},
          {"max_num_batched_tokens", spec.scheduler.max_num_batched_tokens},
          {"prefill_chunk", spec.scheduler.prefill_chunk},
          {"max_model_len", spec.scheduler.max_model_len},
          {"kv_tokens", facts.kv_tokens},
          {"step_time", spec.step_time->Describe()},
          {"requests", o.requests},
          {"output_tokens", o.output_tokens},
          {"steps", o.steps},
          {"preemptions", o.preemptions},
          {"busy_share", share(o.busy_seconds, o.replica_seconds)},
          {"kv_peak_share", share(o.most_pages, o.pages)},
          {"prefix_hit_rate",
           share(static_cast<double>(o.prefix_hits), static_cast<double>(o.prefix_queries))},
          {"most_in_system", o.most_in_system},
          {"replica_seconds", o.replica_seconds},
          {"mean_replicas", share(o.replica_seconds, window_s)},
          {"usd_per_hour", facts.usd_per_hour},
          {"usd", DollarsOf(facts, o)}};
}

json Levels(const load::ServiceLevels& levels) {
  json text = json::object();
  if (levels.ttft) text["ttft_s"] = *levels.ttft;
  if (levels.itl) text["itl_s"] = *levels.itl;
  if (levels.tpot) text["tpot_s"] = *levels.tpot;
  if (levels.e2e) text["e2e_s"] = *levels.e2e;
  return text;
}

// A run that failed much, or whose queue grew from beginning to end, has no steady figures.
std::vector<store::ValidityCheck> Check(const SimPlan& plan, const Outcome& outcome,
                                        const store::RunSummary& summary) {
  std::vector<store::ValidityCheck> checks;
  const double failed =
      summary.total > 0 ? static_cast<double>(summary.failed) / static_cast<double>(summary.total)
                        : 1;
  std::string detail =
      summary.total == 0
          ? std::string("no request fell into the measured window; give a longer duration")
          : fmt::format("{} of {} requests failed ({:.1f} %)", summary.failed, summary.total,
                        100 * failed);
  for (const auto& [kind, count] : summary.errors_by_kind) {
    detail += fmt::format("; {} × {}", count, kind);
  }
  if (!outcome.refusal.empty()) detail += "; e.g. " + outcome.refusal;
  checks.push_back({"errors", summary.ok > 0 && failed <= kMostErrorShare, detail});
  if (plan.cluster.traffic.arrival.kind != load::ArrivalSpec::Kind::kClosed) {
    // Requests that ended in the window against those that came in it.
    const double came = static_cast<double>(summary.total) / summary.duration_s;
    const double share = came > 0 ? summary.requests_per_s / came : 0;
    checks.push_back({"keeps_up", share >= kLeastAchievedShare,
                      fmt::format("{:.2f} requests/s came, {:.2f} ended ({:.0f} %)", came,
                                  summary.requests_per_s, 100 * share)});
  }
  if (outcome.cancelled) checks.push_back({"complete", false, "stopped before its end"});
  return checks;
}

}  // namespace

Result<Simulation> Simulate(const SimPlan& plan, const SimProgressCallback& progress) {
  const SteadyClock clock;
  const Nanos begin = clock.Now();
  store::RunRecord record;
  record.started_at = FormatRfc3339(std::chrono::system_clock::now());
  TARE_TRY(Outcome outcome, RunCluster(plan.cluster, progress));
  record.tag = "simulated";
  record.name = plan.name;
  record.summary = load::Summarize(outcome.recorder, outcome.window, plan.levels);
  record.checks = Check(plan, outcome, record.summary);
  record.valid = std::all_of(record.checks.begin(), record.checks.end(),
                             [](const store::ValidityCheck& check) { return check.ok; });
  const store::RunSummary& summary = record.summary;

  TARE_TRY(const Traffic traffic, Traffic::Create(plan.cluster.traffic));
  record.workload = {{"arrival", load::Describe(plan.cluster.traffic.arrival)},
                     {"prompts", traffic.Describe()},
                     {"seed", plan.cluster.traffic.seed},
                     {"levels", Levels(plan.levels)},
                     {"duration_s", ToSeconds(plan.cluster.duration)},
                     {"requests", plan.cluster.requests},
                     {"warm_up_s", ToSeconds(plan.cluster.warm_up)}};
  if (plan.cluster.traffic.classes.size() == 1) {
    record.workload["input_tokens"] = plan.cluster.traffic.classes[0].input_tokens;
    record.workload["output_tokens"] = plan.cluster.traffic.classes[0].output_tokens;
  }
  if (summary.ok > 0) {
    const auto ok = static_cast<double>(summary.ok);
    record.workload["mean_input_tokens"] = static_cast<double>(summary.input_tokens) / ok;
    record.workload["mean_output_tokens"] = static_cast<double>(summary.output_tokens) / ok;
  }
  json groups = json::array();
  std::string models;
  double dollars = 0;
  for (std::size_t g = 0; g < plan.facts.size(); ++g) {
    groups.push_back(GroupJson(plan.facts[g], plan.cluster.groups[g], outcome.groups[g],
                               outcome.window.seconds()));
    dollars += DollarsOf(plan.facts[g], outcome.groups[g]);
    if (models.find(plan.facts[g].model) == std::string::npos) {
      models += (models.empty() ? "" : ", ") + plan.facts[g].model;
    }
  }
  record.target = {{"url", "simulation"},
                   {"model", models},
                   {"router", ToString(plan.cluster.router)},
                   {"groups", std::move(groups)},
                   {"rerouted", outcome.rerouted},
                   {"usd", dollars}};
  KnownError error;
  for (const GroupSpec& one : plan.cluster.groups) {
    const KnownError known = one.step_time->Error();
    if (error.source.empty() || known.rate > error.rate) error = known;
  }
  record.target[kPredictionErrorKey] = {
      {"rate", error.rate}, {"first_token", error.first_token}, {"source", error.source}};
  record.series = load::MakeSeries(outcome.recorder, outcome.window, plan.levels);
  json at = json::array(), group = json::array(), serving = json::array();
  for (const ReplicaChange& change : outcome.changes) {
    at.push_back(ToSeconds(change.at));
    group.push_back(plan.facts[change.group].name);
    serving.push_back(change.serving);
  }
  record.series["replicas"] = {{"at_s", at}, {"group", group}, {"serving", serving}};
  Simulation simulation{std::move(record), std::move(outcome), ToSeconds(clock.Now() - begin)};
  return simulation;
}

std::string GroupTable(const SimPlan& plan, const Outcome& outcome) {
  std::string out =
      fmt::format("  {:<16}{:>9}{:>10}{:>9}{:>8}{:>9}{:>11}{:>9}{:>10}\n", "replicas", "number",
                  "requests", "tok/s", "busy", "KV peak", "cache hits", "preempt", "USD");
  for (std::size_t g = 0; g < plan.facts.size(); ++g) {
    const GroupOutcome& o = outcome.groups[g];
    const auto percent = [](double part, double whole) {
      return whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : std::string("—");
    };
    const double seconds = outcome.window.seconds();
    const double dollars = DollarsOf(plan.facts[g], o);
    out += fmt::format(
        "  {:<16}{:>9}{:>10}{:>9.0f}{:>8}{:>9}{:>11}{:>9}{:>10}\n",
        plan.facts[g].name.substr(0, 15), o.most_replicas, o.requests,
        seconds > 0 ? static_cast<double>(o.output_tokens) / seconds : 0.0,
        percent(o.busy_seconds, o.replica_seconds), percent(o.most_pages, o.pages),
        percent(static_cast<double>(o.prefix_hits), static_cast<double>(o.prefix_queries)),
        o.preemptions, dollars > 0 ? fmt::format("{:.2f}", dollars) : std::string("—"));
  }
  return out;
}

}  // namespace tare::sim
