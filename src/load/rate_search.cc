#include "load/rate_search.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"

namespace tare::load {
namespace {

constexpr double kClimb = 4;
constexpr int kMostInvalid = 2;
// A probe is planned with more requests than the bare minimum, so that a few misses that the level
// allows do not leave it open.
constexpr double kSampleMargin = 1.5;
constexpr double kLeastSamples = 60;
constexpr Nanos kShortestProbe = std::chrono::seconds(5);
constexpr int kProbesPerBudget = 6;  // no single probe takes more than this part of the time

}  // namespace

const char* ToString(ProbeOutcome outcome) {
  switch (outcome) {
    case ProbeOutcome::kHolds:
      return "holds";
    case ProbeOutcome::kBreaks:
      return "breaks";
    case ProbeOutcome::kUnclear:
      return "unclear";
    case ProbeOutcome::kInvalid:
      return "invalid";
  }
  return "unclear";
}

Status CheckSearch(const SearchSpec& spec, const ServiceLevels& levels) {
  if (!levels.any()) {
    return FailParam("slo",
                     "--search-rate needs levels to hold: add --slo ttft_p99=500ms,tpot_p50=50ms");
  }
  if (!(spec.low > 0) || !(spec.high > spec.low) || spec.high > 1e6) {
    return FailParam("search_rate",
                     "--search-rate {:g}:{:g} is no range; write LOW:HIGH in requests per second, "
                     "both above 0",
                     spec.low, spec.high);
  }
  if (!(spec.resolution > 0 && spec.resolution <= 1)) {
    return FailParam("search_resolution", "--search-resolution {:g} is not between 0 and 1",
                     spec.resolution);
  }
  if (spec.budget <= Nanos(0)) return FailParam("search_time", "--search-time must be above 0");
  return {};
}

Status ParseSearchRate(std::string_view text, SearchSpec& spec) {
  const std::vector<std::string_view> parts = Split(text, ':');
  if (parts.size() != 2) {
    return FailParam("search_rate", "--search-rate '{}' is not understood; write LOW:HIGH, 1:50",
                     text);
  }
  TARE_TRY(spec.low, ParseRatePerSecond(Trim(parts[0])));
  TARE_TRY(spec.high, ParseRatePerSecond(Trim(parts[1])));
  return {};
}

RateSearch::RateSearch(const SearchSpec& spec, const ServiceLevels& levels) : spec_(spec) {
  samples_ = kLeastSamples;
  const auto need = [&](double share) {
    samples_ = std::max(samples_, kSampleMargin * LeastSamplesFor(share));
  };
  if (levels.per_request()) need(levels.good_share);
  for (const PercentileLevel& level : levels.percentiles) need(level.quantile);
}

Nanos RateSearch::LengthOf(double rate) const {
  if (spec_.probe > Nanos(0)) return spec_.probe;
  const Nanos most = std::max(kShortestProbe, spec_.budget / kProbesPerBudget);
  return std::clamp(FromSeconds(samples_ / rate), kShortestProbe, most);
}

bool RateSearch::Settled(const Point& point) const {
  if (point.tries == 0) return point.invalid >= kMostInvalid;
  return point.outcome != ProbeOutcome::kUnclear || point.tries >= spec_.most_tries ||
         point.invalid >= kMostInvalid;
}

std::optional<double> RateSearch::LowestBreak() const {
  for (const auto& [rate, point] : points_) {
    if (point.outcome == ProbeOutcome::kBreaks) return rate;
  }
  return std::nullopt;
}

std::optional<double> RateSearch::HighestHold() const {
  std::optional<double> hold;
  const std::optional<double> broken = LowestBreak();
  for (const auto& [rate, point] : points_) {
    if (broken && rate > *broken) break;
    if (point.outcome == ProbeOutcome::kHolds) hold = rate;
  }
  return hold;
}

std::optional<double> RateSearch::Ceiling() const {
  std::optional<double> ceiling = LowestBreak();
  for (const auto& [rate, point] : points_) {
    if (point.outcome != ProbeOutcome::kInvalid || !Settled(point)) continue;
    if (!ceiling || rate < *ceiling) ceiling = rate;
  }
  return ceiling;
}

std::optional<double> RateSearch::Choose() {
  for (const auto& [rate, point] : points_) {
    if (!Settled(point)) return rate;
  }
  if (points_.empty()) return spec_.low;
  const std::optional<double> hold = HighestHold();
  const std::optional<double> ceiling = Ceiling();
  if (!hold) {
    why_ = points_.begin()->second.outcome == ProbeOutcome::kInvalid
               ? "the lowest rate could not be tested"
           : points_.begin()->second.outcome == ProbeOutcome::kBreaks
               ? "the levels break at the lowest rate; start lower"
               : "too few requests at the lowest rate to show that the levels hold; give a longer "
                 "--search-time or --duration";
    return std::nullopt;
  }
  // Rates between the ends that stayed open.
  double open_low = 0, open_high = 0;
  for (const auto& [rate, point] : points_) {
    if (rate <= *hold || (ceiling && rate >= *ceiling)) continue;
    if (open_low == 0) open_low = rate;
    open_high = rate;
  }
  if (!ceiling) {
    const double from = std::max(*hold, open_high);
    if (from >= spec_.high) {
      why_ = "the levels hold at the highest rate; end higher";
      if (open_high > 0) why_ = "the highest rates leave it open";
      return std::nullopt;
    }
    return std::min(from * kClimb, spec_.high);
  }
  const double below = open_low > 0 ? open_low : *ceiling;  // of the gap above what holds
  const double above = open_high > 0 ? open_high : *hold;   // of the gap below what breaks
  const double low_gap = below / *hold;
  const double high_gap = *ceiling / above;
  const double gap = std::max(low_gap, high_gap);
  if (gap > 1 + spec_.resolution) {
    return low_gap >= high_gap ? std::sqrt(below * *hold) : std::sqrt(*ceiling * above);
  }
  for (const double end : {*hold, *ceiling}) {
    const Point& point = points_.at(end);
    if (point.tries == 1 && point.outcome != ProbeOutcome::kInvalid) return end;
  }
  why_ = points_.at(*ceiling).outcome == ProbeOutcome::kInvalid
             ? "higher rates could not be tested by this client"
         : open_low > 0 ? "the rates between stay open however often they are tried"
                        : "the interval is as narrow as asked";
  return std::nullopt;
}

std::optional<RateSearch::Probe> RateSearch::Next(Nanos elapsed) {
  const std::optional<double> rate = Choose();
  if (!rate) return std::nullopt;
  Probe probe;
  probe.rate = *rate;
  probe.length = LengthOf(*rate);
  if (!points_.empty() && elapsed + probe.length + overhead_ > spec_.budget) {
    why_ = "the time is up";
    return std::nullopt;
  }
  if (const auto it = points_.find(*rate); it != points_.end()) {
    probe.attempt = it->second.tries + it->second.invalid + 1;
  }
  current_ = probe;
  return probe;
}

ProbeOutcome RateSearch::Report(const std::vector<LevelShare>& shares, Nanos overhead) {
  overhead_ = std::max(overhead_, overhead);
  Point& point = points_[current_.rate];
  ++point.tries;
  if (point.shares.empty()) {
    point.shares = shares;
  } else {
    for (std::size_t i = 0; i < point.shares.size() && i < shares.size(); ++i) {
      point.shares[i].Pool(shares[i]);
    }
  }
  switch (Together(point.shares)) {
    case LevelVerdict::kHolds:
      point.outcome = ProbeOutcome::kHolds;
      break;
    case LevelVerdict::kBreaks:
      point.outcome = ProbeOutcome::kBreaks;
      break;
    case LevelVerdict::kUnclear:
      point.outcome = ProbeOutcome::kUnclear;
      break;
  }
  return point.outcome;
}

ProbeOutcome RateSearch::ReportInvalid(const std::string& why, Nanos overhead) {
  overhead_ = std::max(overhead_, overhead);
  Point& point = points_[current_.rate];
  ++point.invalid;
  if (point.tries == 0) point.outcome = ProbeOutcome::kInvalid;
  why_ = why;
  return point.outcome;
}

SearchAnswer RateSearch::Answer() const {
  SearchAnswer answer;
  answer.holds = HighestHold();
  answer.breaks = LowestBreak();
  if (const std::optional<double> ceiling = Ceiling(); ceiling && ceiling != answer.breaks) {
    answer.untested = ceiling;
  }
  answer.why = why_;
  return answer;
}

}  // namespace tare::load
