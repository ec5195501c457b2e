#include "advise/claimed.h"

#include <algorithm>
#include <limits>

#include "advise/measurement.h"
#include "sim/simulate.h"

namespace tare::advise {
namespace {

// A figure that is taken as exact: the vendor's digits are not kept.
econ::Published Exactly(double number, std::string_view unit) {
  econ::Published figure = *econ::ParsePublished(fmt::format("1 {}", unit));
  figure.number = number;
  figure.half_step = 0;
  return figure;
}

econ::JudgedClaim Judged(std::string id, std::string says, std::string where, std::string kind,
                         econ::ClaimBody body) {
  econ::Judgement judgement = econ::Judge(body);
  return {{std::move(id), std::move(where), std::move(says), "", std::move(kind), std::move(body)},
          std::move(judgement)};
}

}  // namespace

Result<std::vector<econ::JudgedClaim>> JudgeFigures(const Candidate& candidate,
                                                    const econ::Catalog& catalog) {
  const ClaimedFigures& claimed = candidate.claimed;
  econ::Subject subject;
  TARE_TRY(subject.model, catalog.FindModel(claimed.model));
  TARE_TRY(subject.device, catalog.FindDevice(claimed.device));
  subject.precision = econ::FindPrecision(claimed.precision);
  if (!subject.precision) {
    return Fail(ErrorKind::kInvalidArgument, "unknown precision '{}'; there are {}",
                claimed.precision, fmt::join(econ::PrecisionNames(), ", "));
  }
  subject.devices = claimed.devices;
  std::vector<econ::JudgedClaim> judged;
  econ::MemoryFitClaim memory{subject, std::nullopt, std::nullopt};
  std::string fits = fmt::format("{} at {} on {} × {}", claimed.model, claimed.precision,
                                 claimed.devices, claimed.device);
  if (claimed.memory_bytes > 0) {
    memory.used = Exactly(claimed.memory_bytes / 1e9, "GB");
    fits += fmt::format(" in {:.4g} GB", claimed.memory_bytes / 1e9);
  }
  judged.push_back(Judged("memory", std::move(fits), claimed.source, "memory_fit", memory));
  econ::DecodeRateClaim rate{subject, Exactly(claimed.output_tokens_per_s, "tokens/s"), {}};
  if (claimed.users > 0) rate.batch = Exactly(claimed.users, "request");
  judged.push_back(Judged("rate",
                          fmt::format("{:.6g} output tokens/s", claimed.output_tokens_per_s),
                          claimed.source, "decode_rate", rate));
  for (const LatencyLimit& one : claimed.latency) {
    if (one.metric != Metric::kTtft) continue;
    judged.push_back(Judged(
        fmt::format("ttft_{}", ToString(one.percentile)),
        fmt::format("{:.4g} s to the first token ({})", one.limit_s, ToString(one.percentile)),
        claimed.source, "prefill",
        econ::PrefillClaim{subject, Exactly(claimed.input_tokens, "tokens"),
                           Exactly(one.limit_s, "s")}));
  }
  return judged;
}

std::string WhyImpossible(const std::vector<econ::JudgedClaim>& claims) {
  for (const econ::JudgedClaim& judged : claims) {
    if (judged.judgement.verdict == econ::Verdict::kImpossible) return judged.judgement.arithmetic;
  }
  return "";
}

double LevelOfFigures(const ClaimedFigures& claimed, const LoadPlan& load) {
  return load.open_loop ? claimed.output_tokens_per_s / claimed.output_tokens : claimed.users;
}

store::RunRecord RecordOfFigures(const Candidate& candidate) {
  const ClaimedFigures& claimed = candidate.claimed;
  // A published percentile is taken to have been seen often enough; nobody says how often.
  const std::uint64_t enough = SamplesNeeded(Percentile::kP99);
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  store::RunRecord record;
  record.tag = "claimed";
  record.name = candidate.name;
  record.valid = true;
  store::RunSummary& summary = record.summary;
  summary.total = summary.ok = enough;
  summary.input_tokens = enough * static_cast<std::uint64_t>(claimed.input_tokens);
  summary.output_tokens = enough * static_cast<std::uint64_t>(claimed.output_tokens);
  summary.output_tokens_per_s = claimed.output_tokens_per_s;
  summary.requests_per_s = claimed.output_tokens_per_s / claimed.output_tokens;
  for (const Metric metric : kMetrics) {
    store::LatencyFigure& figure = (summary.*PlaceOf(metric)).sent;
    figure.mean = figure.max = kUnknown;
    figure.n = enough;
    for (const Percentile percentile : kPercentiles) figure.*PlaceOf(percentile) = kUnknown;
  }
  for (const LatencyLimit& one : claimed.latency) {
    (summary.*PlaceOf(one.metric)).sent.*PlaceOf(one.percentile) = one.limit_s;
  }
  for (const Metric metric : kMetrics) {
    (summary.*PlaceOf(metric)).intended = (summary.*PlaceOf(metric)).sent;
  }
  record.target[sim::kPredictionErrorKey] = {
      {"rate", claimed.error}, {"first_token", claimed.error}, {"source", claimed.source}};
  return record;
}

}  // namespace tare::advise
