#include "advise/tiers.h"

#include <algorithm>
#include <cmath>

#include "base/units.h"

#include "advise/escape.h"
#include "advise/words.h"

namespace tare::advise {
namespace {

// Where no limit of the service levels holds a request may wait a minute; what would wait longer
// comes sooner to its answer by coming again.
constexpr double kLongestWaitSeconds = 60;
constexpr auto kE2e = static_cast<std::size_t>(Metric::kE2e);

bool Answers(const LevelResult& level) {
  return level.invalid.empty() && level.errors_kept && level.ok > 0;
}

// Answers at some level, whatever it makes of the latency limits.
bool Works(const CandidateResult& result) {
  return result.quality_kept && std::any_of(result.levels.begin(), result.levels.end(), Answers);
}

std::vector<std::size_t> Feasible(const Report& report) {
  std::vector<std::size_t> feasible;
  for (const std::size_t i : report.ranking.order) {
    if (report.candidates[i].feasible()) feasible.push_back(i);
  }
  return feasible;
}

Tier Fastest(const Report& report) {
  // By the highest percentile every feasible candidate has.
  for (const Percentile percentile :
       {Percentile::kP99, Percentile::kP95, Percentile::kP90, Percentile::kP50}) {
    const auto p = static_cast<std::size_t>(percentile);
    const auto e2e = [&](std::size_t i) {
      return report.candidates[i].Shown()->percentile_s[kE2e][p];
    };
    std::optional<std::size_t> fastest;
    bool all = true;
    for (const std::size_t i : Feasible(report)) {
      if (std::isnan(e2e(i))) all = false;
      if (!fastest || e2e(i) < e2e(*fastest)) fastest = i;
    }
    if (!all || !fastest) continue;
    Tier tier;
    tier.candidates = {*fastest};
    tier.because = fmt::format("lowest {} of end-to-end latency: {}", ToString(percentile),
                               FormatSeconds(e2e(*fastest)));
    return tier;
  }
  Tier tier;
  tier.candidates = {*report.ranking.first};
  tier.because = "too few answers to compare latencies; the cheapest";
  return tier;
}

Tier Cheapest(const Report& report) {
  const std::size_t first = *report.ranking.first;
  Tier tier;
  tier.candidates = {first};
  tier.because =
      fmt::format("lowest cost of those that keep the service levels: {} USD per million tokens",
                  FormatFigure(report.ranking.standings[first].usd_per_million_tokens));
  return tier;
}

Tiers Mix(const Report& report) {
  Tier interactive, batch;
  interactive.candidates = Feasible(report);
  interactive.because = "keeps the service levels; shared by weight";
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const CandidateResult& result = report.candidates[i];
    if (!result.feasible() && Works(result)) batch.candidates.push_back(i);
  }
  batch.because = "answers, though not within the service levels: nobody waits for batch work";
  if (batch.candidates.empty()) batch = interactive;
  return {std::move(interactive), std::move(batch)};
}

// The others that are there: in the other tier, or running at an address of their own.
void AddFallbacks(const Report& report, const Tier& other, Tier& tier) {
  std::vector<std::size_t> names = other.candidates;
  for (const std::size_t i : Feasible(report)) {
    if (!report.candidates[i].candidate.url.empty()) names.push_back(i);
  }
  for (const std::size_t i : names) {
    const auto in = [&](const std::vector<std::size_t>& list) {
      return std::find(list.begin(), list.end(), i) != list.end();
    };
    if (!in(tier.candidates) && !in(tier.fallbacks)) tier.fallbacks.push_back(i);
  }
}

// What the tightest limit leaves: of the first token, or where there is none of the whole answer.
std::optional<double> SpareTime(const Report& report, const Tier& tier) {
  for (const Metric metric : {Metric::kTtft, Metric::kE2e}) {
    std::optional<double> spare;
    for (const std::size_t i : tier.candidates) {
      if (!report.candidates[i].feasible()) continue;
      for (const LimitCheck& check : report.candidates[i].Shown()->checks) {
        if (check.limit.metric != metric || check.state != LimitCheck::State::kMet) continue;
        spare =
            std::min(spare.value_or(check.limit.limit_s), check.limit.limit_s - check.measured_s);
      }
    }
    if (spare) return spare;
  }
  return std::nullopt;
}

}  // namespace

double PaceOf(const CandidateResult& result) {
  if (result.feasible()) return result.Shown()->rates.requests_per_s;
  double pace = 0;
  for (const LevelResult& level : result.levels) {
    if (Answers(level)) pace = std::max(pace, level.rates.requests_per_s);
  }
  return pace;
}

Tiers ChooseTiers(const Report& report) {
  if (!report.ranking.first) return {};
  Tiers tiers = report.plan.mix ? Mix(report) : Tiers{Fastest(report), Cheapest(report)};
  AddFallbacks(report, *tiers.batch, *tiers.interactive);
  AddFallbacks(report, *tiers.interactive, *tiers.batch);
  for (Tier* tier : {&*tiers.interactive, &*tiers.batch}) {
    for (const std::size_t i : tier->candidates) {
      tier->requests_per_s += PaceOf(report.candidates[i]);
    }
  }
  tiers.interactive->wait_s = SpareTime(report, *tiers.interactive).value_or(kLongestWaitSeconds);
  tiers.batch->wait_s = kLongestWaitSeconds;
  return tiers;
}

}  // namespace tare::advise
