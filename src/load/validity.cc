#include "load/validity.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/units.h"

namespace tare::load {
namespace {

// Limits. Those in time are a share of what is measured (a tenth of the median latency), but never
// tighter than what a loaded two-core machine does to any process.
constexpr double kMostErrorShare = 0.05;
constexpr double kLeastAchievedShare = 0.95;
constexpr double kMostClientCpu = 0.80;
constexpr double kLagShareOfMedian = 0.10;
constexpr double kLagFloorSeconds = 0.005;
constexpr double kMostClockJump = 0.100;
constexpr double kMostStartSkew = 0.100;
constexpr double kLengthTolerance = 0.05;
constexpr double kLeastExactAnswers = 0.95;

Nanos ReadClock(clockid_t id) {
  timespec time{};
  ::clock_gettime(id, &time);
  return std::chrono::seconds(time.tv_sec) + Nanos(time.tv_nsec);
}

std::string Percent(double share) { return fmt::format("{:.1f} %", share * 100); }
std::string Duration(double seconds) { return FormatDuration(FromSeconds(seconds)); }

// The median latency the run is about: of the first token, or of the answer when it is not
// streamed.
double TypicalLatency(const store::RunSummary& summary) {
  const double ttft = summary.ttft.sent.p50;
  if (summary.ttft.sent.n > 0 && std::isfinite(ttft)) return ttft;
  return summary.e2e.sent.n > 0 && std::isfinite(summary.e2e.sent.p50) ? summary.e2e.sent.p50 : 0;
}

double LagLimit(const store::RunSummary& summary) {
  return std::max(kLagFloorSeconds, kLagShareOfMedian * TypicalLatency(summary));
}

double Quantile99(const Histogram& histogram) { return histogram.Quantile(0.99) * 1e-9; }

class Checks {
 public:
  void Add(const char* name, bool ok, std::string detail) {
    list_.push_back({name, ok, std::move(detail)});
  }
  std::vector<store::ValidityCheck> Take() { return std::move(list_); }

 private:
  std::vector<store::ValidityCheck> list_;
};

void CheckErrors(const RunEvidence& e, Checks& checks) {
  const store::RunSummary& s = *e.summary;
  if (s.total == 0) {
    checks.Add("requests", false,
               "no request was sent in the measured window; give a longer --duration");
    return;
  }
  const double share = static_cast<double>(s.failed) / static_cast<double>(s.total);
  std::string detail =
      fmt::format("{} of {} requests failed ({})", s.failed, s.total, Percent(share));
  for (const auto& [kind, count] : s.errors_by_kind) {
    detail += fmt::format("; {} × {}", count, kind);
  }
  if (s.failed > 0 && !e.error_samples.empty()) detail += "; e.g. " + e.error_samples.front();
  checks.Add("errors", s.ok > 0 && share <= kMostErrorShare, std::move(detail));
}

void CheckSchedule(const RunEvidence& e, Checks& checks) {
  if (e.options->arrival.kind == ArrivalSpec::Kind::kClosed) return;
  Histogram lag;
  std::uint64_t picked_up = 0;
  for (const RequestRecord& record : e.recorder->requests()) {
    if (record.phase != Phase::kMeasured) continue;
    lag.Add((record.queued - record.intended).count());
    if (record.turn == 0) ++picked_up;  // later turns follow answers, not the schedule
  }
  const double limit = LagLimit(*e.summary);
  checks.Add("schedule_lag", Quantile99(lag) <= limit,
             fmt::format("requests left the schedule {} late at P99, {} at worst (limit {})",
                         Duration(Quantile99(lag)), Duration(static_cast<double>(lag.max()) * 1e-9),
                         Duration(limit)));
  std::uint64_t wanted = 0;
  for (const ThreadMeasurement& thread : *e.threads) wanted += thread.schedule_wanted;
  const double share =
      wanted > 0 ? static_cast<double>(picked_up) / static_cast<double>(wanted) : 1;
  checks.Add("achieved_rate", share >= kLeastAchievedShare,
             fmt::format("{} of {} scheduled requests were sent ({}, at least {} needed)",
                         picked_up, wanted, Percent(share), Percent(kLeastAchievedShare)));
}

void CheckClient(const RunEvidence& e, Checks& checks) {
  double busiest = 0;
  Histogram receive_lag(7), rounds(7);
  for (const ThreadMeasurement& thread : *e.threads) {
    if (thread.wall_s > 0) busiest = std::max(busiest, thread.cpu_s / thread.wall_s);
    receive_lag.Merge(thread.receive_lag);
    rounds.Merge(thread.loop.round);
  }
  checks.Add("client_cpu", busiest <= kMostClientCpu,
             fmt::format("the busiest client thread used {} of a core (limit {}); raise --threads "
                         "when it is near the limit",
                         Percent(busiest), Percent(kMostClientCpu)));
  const double limit = LagLimit(*e.summary);
  if (receive_lag.count() > 0) {
    // Stamps come from the kernel, so this lag is not in the latencies; but a client this late
    // sends its next requests late as well.
    checks.Add(
        "client_lag", Quantile99(receive_lag) <= limit,
        fmt::format("the client read bytes {} after they arrived at P99, {} at worst "
                    "(limit {})",
                    Duration(Quantile99(receive_lag)),
                    Duration(static_cast<double>(receive_lag.max()) * 1e-9), Duration(limit)));
  } else {
    checks.Add("client_lag", Quantile99(rounds) <= limit,
               fmt::format("the client looked at its sockets every {} at P99, {} at worst "
                           "(limit {})",
                           Duration(Quantile99(rounds)),
                           Duration(static_cast<double>(rounds.max()) * 1e-9), Duration(limit)));
  }
}

void CheckLengths(const RunEvidence& e, Checks& checks) {
  std::uint64_t answers = 0, exact = 0, prompts = 0;
  double wanted_input = 0, told_input = 0;
  for (const RequestRecord& r : e.recorder->requests()) {
    if (!r.ok() || r.phase != Phase::kMeasured) continue;
    if (e.exact_lengths && r.wanted_output > 0 && r.told_usage) {
      ++answers;
      if (r.told_output == r.wanted_output) ++exact;
    }
    if (r.wanted_input > 0 && r.told_usage && r.told_input > 0) {
      ++prompts;
      wanted_input += r.wanted_input;
      told_input += r.told_input;
    }
  }
  if (answers > 0) {
    const double share = static_cast<double>(exact) / static_cast<double>(answers);
    checks.Add("output_lengths", share >= kLeastExactAnswers,
               fmt::format("{} of {} answers have exactly the wanted length ({})", exact, answers,
                           Percent(share)));
  }
  if (prompts > 0) {
    const double off = told_input / wanted_input - 1;
    checks.Add("input_lengths", std::abs(off) <= kLengthTolerance,
               fmt::format("prompts are {} {} than wanted on average, by the server's count "
                           "(limit {})",
                           Percent(std::abs(off)), off < 0 ? "shorter" : "longer",
                           Percent(kLengthTolerance)));
  }
}

void CheckCache(const RunEvidence& e, Checks& checks) {
  if (!e.options->workload.dataset.empty() ||
      e.options->arrival.kind == ArrivalSpec::Kind::kTrace) {
    return;
  }
  // Later turns of a session are meant to be found; a first one is not.
  double told = 0, cached = 0;
  for (const RequestRecord& r : e.recorder->requests()) {
    if (!r.ok() || r.phase != Phase::kMeasured || r.turn > 0 || !r.told_usage) continue;
    told += r.told_input;
    cached += r.told_cached;
  }
  if (told <= 0) return;
  // What the template and the declared prefix share may be cached; one page more for its rounding.
  const double share = cached / told;
  constexpr double kTemplateTokens = 64;
  const double allowed =
      e.options->workload.shared_prefix +
      kTemplateTokens / std::max(1.0, static_cast<double>(e.options->workload.input_tokens));
  checks.Add(
      "prefix_cache", share <= std::min(1.0, allowed),
      fmt::format("the server found {} of the {} in its prefix cache ({} were "
                  "declared shared)",
                  Percent(share),
                  e.options->workload.turns > 1 ? "first turns' prompt tokens" : "prompt tokens",
                  Percent(e.options->workload.shared_prefix)));
}

// Every agent's part is there, and they began together.
void CheckAgents(const RunEvidence& e, Checks& checks) {
  if (!e.agents.is_array()) return;
  std::size_t lost = 0;
  double skew = 0;
  std::string who;
  for (const nlohmann::json& agent : e.agents) {
    if (agent.value("lost", false)) {
      ++lost;
      who += (who.empty() ? ": " : ", ") + agent.value("name", std::string());
    }
    skew = std::max(skew,
                    agent.value("started_late_s", 0.0) + agent.value("clock_uncertainty_s", 0.0));
  }
  checks.Add("agents", lost == 0 && !e.agents.empty(),
             fmt::format("{} of {} agents were lost{}", lost, e.agents.size(), who));
  checks.Add("start_together", skew <= kMostStartSkew,
             fmt::format("agents started within {} of one another (limit {})", Duration(skew),
                         Duration(kMostStartSkew)));
}

void CheckClocks(const RunEvidence& e, Checks& checks) {
  const auto elapsed = [&](Nanos ClockReadings::*clock) {
    return ToSeconds(e.after.*clock - e.before.*clock);
  };
  const double run = elapsed(&ClockReadings::monotonic);
  const double jump = std::abs(elapsed(&ClockReadings::wall) - run);
  const double asleep = elapsed(&ClockReadings::boot) - run;
  checks.Add("clocks", jump <= kMostClockJump && asleep <= kMostClockJump,
             fmt::format("the wall clock moved {} against the monotonic one; the machine slept {}",
                         Duration(jump), Duration(std::max(0.0, asleep))));
}

}  // namespace

ClockReadings ClockReadings::Now() {
  return {ReadClock(CLOCK_MONOTONIC), ReadClock(CLOCK_REALTIME), ReadClock(CLOCK_BOOTTIME)};
}

std::vector<store::ValidityCheck> CheckValidity(const RunEvidence& evidence) {
  Checks checks;
  CheckErrors(evidence, checks);
  CheckSchedule(evidence, checks);
  CheckClient(evidence, checks);
  CheckLengths(evidence, checks);
  CheckCache(evidence, checks);
  CheckClocks(evidence, checks);
  CheckAgents(evidence, checks);
  if (evidence.cancelled) checks.Add("complete", false, "the run was ended early");
  return checks.Take();
}

}  // namespace tare::load
