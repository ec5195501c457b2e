#include "load/runner.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

#include "base/rfc3339.h"
#include "base/units.h"
#include "load/arrivals.h"
#include "load/figures.h"
#include "load/fleet.h"
#include "load/generator.h"
#include "load/levels.h"
#include "load/probe.h"
#include "load/server_memory.h"
#include "load/server_metrics.h"
#include "load/sessions.h"
#include "load/trace.h"
#include "load/validity.h"

namespace tare::load {
namespace {

using nlohmann::json;

constexpr Nanos kTick = std::chrono::milliseconds(100);
// The threads get this long to start before the first arrival is due.
constexpr Nanos kLeadTime = std::chrono::milliseconds(50);
constexpr Nanos kMostWarmUp = std::chrono::seconds(10);
// Beyond these one thread would come near a full core (docs/LOAD.md, self-test).
constexpr int kUsersPerThread = 2000;
constexpr double kRatePerThread = 5000;

Status CheckOptions(const LoadOptions& options) {
  TARE_RETURN_IF_ERROR(CheckArrivals(options.arrival));
  const bool trace = options.arrival.kind == ArrivalSpec::Kind::kTrace;
  if (options.duration <= Nanos(0) && options.requests == 0 && !trace) {
    return FailParam("duration", "a run needs an end: give --duration 60s or --requests 1000");
  }
  const WorkloadSpec& workload = options.workload;
  constexpr int kMostTokens = 10'000'000;
  if (workload.dataset.empty() && !trace) {
    if (workload.input_tokens < 1 || workload.input_tokens > kMostTokens) {
      return FailParam("input_tokens", "--input-tokens {} is out of range", workload.input_tokens);
    }
    if (workload.output_tokens < 1 || workload.output_tokens > kMostTokens) {
      return FailParam("output_tokens", "--output-tokens {} is out of range",
                       workload.output_tokens);
    }
  }
  if (!(workload.shared_prefix >= 0 && workload.shared_prefix <= 1)) {
    return FailParam("shared_prefix", "--shared-prefix {} is not a share between 0 and 1",
                     workload.shared_prefix);
  }
  if (workload.turns < 1 || workload.turns > 10'000) {
    return FailParam("turns", "--turns {} is out of range; give 1 to 10000", workload.turns);
  }
  if (workload.turns > 1 && (trace || options.api != Api::kChat)) {
    return FailParam(
        "turns", "--turns needs the chat API and no trace: {}",
        trace ? "a trace has its own requests" : "completions have no messages to go on from");
  }
  if (workload.turn_tokens < 0 || workload.turn_tokens > kMostTokens) {
    return FailParam("turn_tokens", "--turn-tokens {} is out of range", workload.turn_tokens);
  }
  if (options.keep_chunks && options.out_dir.empty()) {
    return FailParam("chunks", "--chunks needs --out DIR, where the file goes");
  }
  if (options.keep_chunks && options.fleet != nullptr) {
    return FailParam("chunks",
                     "--chunks keeps those of this process; leave out --workers and --agents");
  }
  if (options.threads < 0 || options.threads > 256) {
    return FailParam("threads", "--threads {} is out of range", options.threads);
  }
  return {};
}

int WantedThreads(const LoadOptions& options) {
  if (options.threads > 0) return options.threads;
  const ArrivalSpec& a = options.arrival;
  return a.kind == ArrivalSpec::Kind::kClosed
             ? 1 + a.users / kUsersPerThread
             : 1 + static_cast<int>(std::max(a.rate, a.ramp_to) * std::max(1.0, a.burst_factor) /
                                    kRatePerThread);
}

int ChooseThreads(const LoadOptions& options) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return options.threads > 0 ? options.threads : std::clamp(WantedThreads(options), 1, cores);
}

// The threads of this process, or the agents; these may move the plan's times on.
Result<std::unique_ptr<LoadSource>> StartSource(const LoadOptions& options, const Target& target,
                                                RunPlan& plan) {
  if (options.fleet == nullptr) {
    TARE_TRY(std::unique_ptr<Generator> generator, Generator::Start(plan, target.shape));
    return std::unique_ptr<LoadSource>(std::move(generator));
  }
  TARE_TRY(Fleet::Started started,
           options.fleet->Start({plan, target.shape, options.workload, target.calibration},
                                WantedThreads(options)));
  plan.start = started.start;
  plan.window_begin = started.window_begin;
  plan.window_end = started.window_end;
  return std::move(started.source);
}

// Progress figures over the last second, from counters read ten times a second.
class ProgressMeter {
 public:
  void Fill(Nanos now, const LoadSource::Counts& counts, LoadProgress& progress) {
    progress.in_flight = counts.in_flight;
    progress.ok = counts.ok;
    progress.failed = counts.failed;
    points_.push_back({now, counts.ok, counts.tokens});
    if (points_.size() > 11) points_.erase(points_.begin());
    const double span = ToSeconds(now - points_.front().at);
    if (span <= 0) return;
    progress.requests_per_s = static_cast<double>(progress.ok - points_.front().ok) / span;
    progress.output_tokens_per_s =
        static_cast<double>(points_.back().tokens - points_.front().tokens) / span;
  }

 private:
  struct Point {
    Nanos at;
    std::uint64_t ok, tokens;
  };
  std::vector<Point> points_;
};

Nanos LastMeasuredEnd(const Recorder& recorder, Nanos fallback) {
  Nanos end = fallback;
  for (const RequestRecord& record : recorder.requests()) {
    if (record.phase == Phase::kMeasured) end = std::max(end, record.end + Nanos(1));
  }
  return end;
}

// Asked against achieved: what of the trace really happened.
json Fidelity(const Trace& trace, const LoadOptions& options, const Recorder& recorder,
              const Window& window) {
  double lag_sum = 0, lag_max = 0;
  double wanted_in = 0, told_in = 0, wanted_out = 0, told_out = 0, cached = 0;
  std::size_t sent = 0, answered = 0, due = 0;
  for (const TraceRequest& request : trace.requests) {
    const Nanos at = FromSeconds(ToSeconds(request.at) / options.arrival.speedup);
    if (window.start + at < window.end) ++due;
  }
  for (const RequestRecord& record : recorder.requests()) {
    ++sent;
    const double lag = ToSeconds(record.queued - record.intended);
    lag_sum += lag;
    lag_max = std::max(lag_max, lag);
    if (!record.ok() || !record.told_usage) continue;
    ++answered;
    wanted_in += record.wanted_input;
    told_in += record.told_input;
    wanted_out += record.wanted_output;
    told_out += record.told_output;
    cached += record.told_cached;
  }
  const auto ratio = [](double a, double b) { return b > 0 ? json(a / b) : json(nullptr); };
  return {{"requests_in_trace", trace.requests.size()},
          {"requests_due", due},
          {"requests_sent", sent},
          {"requests_answered", answered},
          {"trace_rate_per_s", trace.mean_rate()},
          {"trace_gap_cv", trace.gap_cv()},
          {"arrival_lag_s",
           {{"mean", sent > 0 ? lag_sum / static_cast<double>(sent) : 0}, {"max", lag_max}}},
          {"input_tokens_told_to_wanted", ratio(told_in, wanted_in)},
          {"output_tokens_told_to_wanted", ratio(told_out, wanted_out)},
          {"prefix_hit_rate_ideal", trace.ideal_prefix_hit_rate()},
          {"prefix_hit_rate_told", ratio(cached, told_in)}};
}

// How simultaneous the bursts were and what they did to the tail (SPEC LT3).
json BurstReport(const LoadOptions& options, const Recorder& recorder, const Window& window) {
  const ArrivalSpec& arrival = options.arrival;
  std::vector<double> steady, burst;
  std::vector<double> starts;  // how late the requests of bursts left
  const double every = ToSeconds(arrival.burst_every);
  const double length = ToSeconds(arrival.burst_for);
  for (const RequestRecord& record : recorder.requests()) {
    if (!record.ok() || record.phase != Phase::kMeasured) continue;
    const double t = ToSeconds(record.intended - window.start);
    const bool inside = t >= every && std::fmod(t, every) < length;
    const double ttft = LatenciesOf(record).ttft_intended;
    if (std::isfinite(ttft)) (inside ? burst : steady).push_back(ttft);
    if (inside) starts.push_back(ToSeconds(record.sent - record.intended));
  }
  const store::LatencyFigure calm = FigureOf(std::move(steady));
  const store::LatencyFigure rush = FigureOf(std::move(burst));
  const store::LatencyFigure skew = FigureOf(std::move(starts));
  const auto number = [](double v) { return std::isfinite(v) ? json(v) : json(nullptr); };
  return {{"requests_steady", calm.n},
          {"requests_in_bursts", rush.n},
          {"ttft_p99_steady_s", number(calm.p99)},
          {"ttft_p99_burst_s", number(rush.p99)},
          {"jitter", number(rush.p99 / calm.p99)},
          {"send_skew_s", {{"p50", number(skew.p50)}, {"max", number(skew.max)}}}};
}

json Workload(const LoadOptions& options, const PromptSource& prompts, const Window& window,
              const store::RunSummary& summary) {
  json text = {{"arrival", Describe(options.arrival)},
               {"prompts", prompts.Describe()},
               {"seed", options.workload.seed},
               {"api", options.api == Api::kChat ? "chat" : "completions"},
               {"stream", options.stream},
               {"temperature", options.temperature},
               {"levels", Describe(options.levels)},
               {"duration_s", ToSeconds(options.duration)},
               {"requests", options.requests},
               {"warm_up_s", ToSeconds(window.begin - window.start)}};
  if (options.workload.dataset.empty()) {
    text["input_tokens"] = options.workload.input_tokens;
    text["output_tokens"] = options.workload.output_tokens;
  }
  if (summary.ok > 0) {
    text["mean_input_tokens"] =
        static_cast<double>(summary.input_tokens) / static_cast<double>(summary.ok);
    text["mean_output_tokens"] =
        static_cast<double>(summary.output_tokens) / static_cast<double>(summary.ok);
  }
  return text;
}

// Little's law: mean number in flight = completed rate × mean time. What is left over says how far
// the window was from a steady state.
json LittlesLaw(const Recorder& recorder, const Window& window) {
  double inside = 0, time = 0;
  std::uint64_t ended = 0;
  for (const RequestRecord& record : recorder.requests()) {
    if (record.sent == Nanos(0) || record.end == Nanos(0)) continue;
    inside += std::max(
        0.0, ToSeconds(std::min(record.end, window.end) - std::max(record.sent, window.begin)));
    if (record.end >= window.begin && record.end < window.end) {
      ++ended;
      time += ToSeconds(record.end - record.sent);
    }
  }
  if (ended == 0 || window.seconds() <= 0) return nullptr;
  const double in_flight = inside / window.seconds();
  const double predicted = time / window.seconds();
  return {{"mean_in_flight", in_flight},
          {"rate_times_latency", predicted},
          {"residual", in_flight > 0 ? predicted / in_flight - 1 : 0}};
}

json ClientFacts(const std::vector<ThreadMeasurement>& threads) {
  double cpu = 0;
  Histogram lag(7), lateness(7);
  for (const ThreadMeasurement& thread : threads) {
    cpu += thread.wall_s > 0 ? thread.cpu_s / thread.wall_s : 0;
    lag.Merge(thread.receive_lag);
    lateness.Merge(thread.loop.timer_lateness);
  }
  const auto quantile = [](const Histogram& h, double q) {
    return h.count() > 0 ? json(h.Quantile(q) * 1e-9) : json(nullptr);
  };
  return {{"threads", threads.size()},
          {"cpu_cores", cpu},
          {"receive_lag_s",
           {{"p50", quantile(lag, 0.5)}, {"p99", quantile(lag, 0.99)}, {"max", quantile(lag, 1)}}},
          {"timer_lateness_s",
           {{"p50", quantile(lateness, 0.5)},
            {"p99", quantile(lateness, 0.99)},
            {"max", quantile(lateness, 1)}}}};
}

}  // namespace

void RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

Nanos DefaultWarmUp(Nanos duration) {
  return duration <= Nanos(0) ? Nanos(0) : std::min(duration / 10, kMostWarmUp);
}

Result<store::RunRecord> RunLoad(const LoadOptions& given, ProgressSink* sink) {
  LoadOptions options = given;
  TARE_RETURN_IF_ERROR(CheckOptions(options));
  if (options.workload.seed == 0) options.workload.seed = std::random_device{}() | 1u;
  RaiseFileLimit();

  LoadProgress progress;
  if (sink != nullptr) sink->OnProgress(progress);
  TARE_TRY(const Target target, ProbeTarget(options));
  TARE_TRY(const PromptsAndTrace made,
           MakePrompts(options.arrival, options.workload, target.calibration));
  const std::unique_ptr<PromptSource>& prompts = made.prompts;
  const std::shared_ptr<const Trace>& trace = made.trace;

  std::optional<MemorySampler> memory;
  if (options.server_pid) {
    memory.emplace(*options.server_pid);
  } else if (IsLoopback(target.base.host)) {
    if (const std::optional<int> pid = FindListener(target.base.port)) memory.emplace(*pid);
  }

  TARE_TRY(const std::unique_ptr<MetricsScraper> metrics,
           MetricsScraper::Create(target.base.WithPath("/metrics"), target.shape.headers,
                                  options.verify_tls));

  RunPlan plan;
  plan.arrival = options.arrival;
  plan.seed = options.workload.seed;
  plan.requests = options.requests;
  plan.threads = ChooseThreads(options);
  plan.verify_tls = options.verify_tls;
  plan.prompts = prompts.get();
  plan.trace = trace;
  plan.sessions = options.workload.turns > 1;
  const Nanos warm_up = options.warm_up.value_or(DefaultWarmUp(options.duration));
  plan.start = net::MonotonicNow() + kLeadTime;
  plan.window_begin = plan.start + warm_up;
  plan.window_end =
      options.duration > Nanos(0) ? plan.window_begin + options.duration : Nanos::max();

  std::unique_ptr<ChunkLog> chunks;
  if (options.keep_chunks) {
    TARE_TRY(chunks, ChunkLog::Open(options.out_dir / "chunks.csv.zst"));
    plan.chunks = chunks.get();
  }

  store::RunRecord record;
  record.name = options.name;
  record.started_at = FormatRfc3339(std::chrono::system_clock::now());
  const ClockReadings before = ClockReadings::Now();
  TARE_TRY(const std::unique_ptr<LoadSource> generator, StartSource(options, target, plan));

  ProgressMeter meter;
  bool cancelled = false;
  // A run by count has no set end: it is over when its answers are in, or stop coming in.
  Nanos give_up = plan.window_end == Nanos::max() ? Nanos::max() : plan.window_end + options.drain;
  while (!generator->Idle()) {
    std::this_thread::sleep_for(kTick);
    const Nanos now = net::MonotonicNow();
    if (memory) memory->Sample(now);
    metrics->Tick(now);
    progress.elapsed_s = std::max(0.0, ToSeconds(now - plan.start));
    progress.phase = now < plan.window_begin ? LoadProgress::Phase::kWarmUp
                     : now < plan.window_end ? LoadProgress::Phase::kMeasuring
                                             : LoadProgress::Phase::kDraining;
    meter.Fill(now, generator->counts(), progress);
    const double whole = ToSeconds(warm_up + options.duration);
    progress.share = options.duration > Nanos(0) ? std::min(1.0, progress.elapsed_s / whole)
                     : options.requests > 0
                         ? std::min(1.0, static_cast<double>(progress.ok + progress.failed) /
                                             static_cast<double>(options.requests))
                         : 0;
    if (sink != nullptr) {
      sink->OnProgress(progress);
      if (!cancelled && sink->Cancelled()) {
        cancelled = true;
        generator->StopIssuing();
        give_up = std::min(give_up, now + std::min(options.drain, Nanos(std::chrono::seconds(2))));
      }
    }
    if (now >= give_up) break;
  }
  const Nanos stopped = net::MonotonicNow();
  LoadSource::Recording recording = generator->Finish();
  const ClockReadings after = ClockReadings::Now();
  if (chunks != nullptr) {
    TARE_RETURN_IF_ERROR(chunks->Close());
    record.workload["chunks"] = {{"file", "chunks.csv.zst"},
                                 {"rows", chunks->rows()},
                                 {"bytes", chunks->bytes()},
                                 {"waits", chunks->waits()}};
  }

  Window window{plan.start, plan.window_begin, plan.window_end};
  // What ends by a count or a trace's last line may be over long before its window: the rest of the
  // window is no time under load.
  const bool counted = options.requests > 0 || trace != nullptr;
  if (plan.window_end == Nanos::max() || cancelled || (counted && stopped < plan.window_end)) {
    window.end = std::max(LastMeasuredEnd(recording.recorder, plan.window_begin + Nanos(1)),
                          plan.window_begin + Nanos(1));
    window.end = std::min(window.end, std::max(stopped, plan.window_begin + Nanos(1)));
  }

  record.summary = Summarize(recording.recorder, window, options.levels);
  if (memory) {
    record.summary.peak_rss_bytes = memory->peak_rss();
    record.summary.peak_pss_bytes = memory->peak_pss();
  }
  RunEvidence evidence;
  evidence.options = &options;
  evidence.recorder = &recording.recorder;
  evidence.threads = &recording.threads;
  evidence.window = window;
  evidence.summary = &record.summary;
  evidence.before = before;
  evidence.after = after;
  evidence.exact_lengths = target.shape.exact_lengths;
  evidence.cancelled = cancelled;
  evidence.error_samples = recording.error_samples;
  evidence.agents = recording.agents;
  record.checks = CheckValidity(evidence);
  record.valid = std::all_of(record.checks.begin(), record.checks.end(),
                             [](const store::ValidityCheck& check) { return check.ok; });

  record.workload.update(Workload(options, *prompts, window, record.summary));
  if (trace != nullptr) {
    record.workload["fidelity"] = Fidelity(*trace, options, recording.recorder, window);
  }
  if (options.arrival.burst_every > Nanos(0) && options.arrival.burst_for > Nanos(0)) {
    record.workload["bursts"] = BurstReport(options, recording.recorder, window);
  }
  if (plan.sessions) {
    record.workload["sessions"] = SessionFacts(recording.recorder, recording.threads);
  }
  record.workload["littles_law"] = LittlesLaw(recording.recorder, window);
  record.workload["client"] = ClientFacts(recording.threads);
  if (recording.agents.is_array()) record.workload["agents"] = recording.agents;
  record.target = options.target_facts.is_object() ? options.target_facts : json::object();
  record.target["url"] = target.base.Origin();
  record.target["model"] = target.model;
  if (!target.server.empty()) record.target["server"] = target.server;
  if (memory) record.target["pid"] = memory->pid();
  record.series = MakeSeries(recording.recorder, window, options.levels);
  for (const LevelShare& share : SharesOf(record, options.levels)) {
    record.workload["level_shares"].push_back(ToJson(share));
  }
  if (memory) {
    json at = json::array(), rss = json::array();
    for (const MemorySampler::Point& point : memory->points()) {
      at.push_back(std::round(ToSeconds(point.at - plan.start) * 1e3) / 1e3);
      rss.push_back(point.rss_bytes);
    }
    record.series["memory"] = {{"t_s", at}, {"rss_bytes", rss}};
  }
  for (const auto& [name, points] : metrics->Take()) {
    json at = json::array();
    for (const Nanos t : points.at) {
      at.push_back(std::round(ToSeconds(t - plan.start) * 1e3) / 1e3);
    }
    record.series["server"][name] = {{"t_s", at}, {"value", points.value}};
  }
  if (!options.out_dir.empty()) {
    TARE_RETURN_IF_ERROR(WriteCsv(recording.recorder, window, options.levels, options.out_dir));
  }
  return record;
}

}  // namespace tare::load
