#include "load/rate_search_run.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "net/event_loop.h"

namespace tare::load {
namespace {

// What a probe may take beyond its window for answers under way: with more, one overloaded probe
// would cost more than all the others.
Nanos DrainOf(const LoadOptions& options, Nanos length) { return std::min(options.drain, length); }

SearchProbe Summary(const store::RunRecord& record, const RateSearch::Probe& probe) {
  SearchProbe result;
  result.rate = probe.rate;
  result.attempt = probe.attempt;
  result.requests_per_s = record.summary.requests_per_s;
  result.ttft_p50 = record.summary.ttft.intended.p50;
  result.ttft_p99 = record.summary.ttft.intended.p99;
  result.tpot_p50 = record.summary.tpot.sent.p50;
  return result;
}

ProbeOutcome OutcomeOf(LevelVerdict verdict) {
  switch (verdict) {
    case LevelVerdict::kHolds:
      return ProbeOutcome::kHolds;
    case LevelVerdict::kBreaks:
      return ProbeOutcome::kBreaks;
    case LevelVerdict::kUnclear:
      return ProbeOutcome::kUnclear;
  }
  return ProbeOutcome::kUnclear;
}

}  // namespace

std::string NoEvidence(const store::RunRecord& record) {
  std::string why;
  for (const store::ValidityCheck& check : record.checks) {
    if (check.ok || check.name == "errors") continue;
    why += (why.empty() ? "" : "; ") + check.name + ": " + check.detail;
  }
  return why;
}

Result<SearchResult> SearchRate(LoadOptions options, const SearchSpec& spec,
                                const SearchHooks& hooks) {
  TARE_RETURN_IF_ERROR(CheckSearch(spec, options.levels));
  if (options.arrival.kind == ArrivalSpec::Kind::kClosed) {
    options.arrival.kind = ArrivalSpec::Kind::kPoisson;
  }
  if (options.arrival.kind == ArrivalSpec::Kind::kTrace) {
    return FailParam("search_rate",
                     "--search-rate sets the rate, a trace has its own; vary --speedup instead");
  }
  if (options.arrival.ramp_over > Nanos(0)) {
    return FailParam("search_rate", "--search-rate holds each rate steady; leave out --ramp");
  }
  const std::string name = options.name;
  const Nanos begin = net::MonotonicNow();
  SearchResult result;
  result.spec = spec;
  result.levels = Describe(options.levels);
  RateSearch search(spec, options.levels);
  std::string ended;
  std::uint64_t serial = 0;
  while (const auto probe = search.Next(net::MonotonicNow() - begin)) {
    LoadOptions one = options;
    one.arrival.rate = probe->rate;
    one.duration = probe->length;
    one.requests = 0;
    one.drain = DrainOf(options, probe->length);
    one.name = fmt::format("{}{}rate-{:.4g}-{}", name, name.empty() ? "" : "-", probe->rate,
                           probe->attempt);
    // Other prompts each time: a prefix cache that remembers the last probe would flatter this one.
    if (options.workload.seed != 0) one.workload.seed = options.workload.seed + 1000 * serial;
    ++serial;
    if (!options.out_dir.empty()) one.out_dir = options.out_dir / one.name;
    const Nanos started = net::MonotonicNow();
    Result<store::RunRecord> record = hooks.run ? hooks.run(one) : RunLoad(one, nullptr);
    const Nanos took = net::MonotonicNow() - started;
    if (!record) {
      if (result.probes.empty()) return tl::unexpected(record.error());
      ended = "the server stopped answering: " + record.error().message;
      break;
    }
    if (result.probes.empty()) {
      result.target = record->target;
      result.arrival = record->workload.value("arrival", nlohmann::json::object());
      result.arrival.erase("rate_per_s");
    }
    if (hooks.keep) {
      TARE_TRY(record->id, hooks.keep(*record));
    }
    SearchProbe seen = Summary(*record, *probe);
    seen.run = record->id;
    seen.seconds = ToSeconds(took);
    const Nanos overhead = std::max(Nanos(0), took - probe->length);
    seen.invalid = NoEvidence(*record);
    if (seen.invalid.empty()) {
      seen.shares = SharesOf(*record, options.levels);
      seen.outcome = OutcomeOf(Together(seen.shares));
      search.Report(seen.shares, overhead);
    } else {
      seen.outcome = ProbeOutcome::kInvalid;
      search.ReportInvalid(seen.invalid, overhead);
    }
    if (hooks.say) hooks.say(seen);
    result.probes.push_back(std::move(seen));
    if (hooks.cancelled && hooks.cancelled()) {
      ended = "it was ended early";
      break;
    }
  }
  result.answer = search.Answer();
  if (!ended.empty()) result.answer.why = ended;
  result.seconds = ToSeconds(net::MonotonicNow() - begin);
  return result;
}

}  // namespace tare::load
