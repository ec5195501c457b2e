// Claims about services: speed-ups of parts (Amdahl 1967), requests in flight (Little 1961),
// classifiers, availability.
#include <cmath>

#include "econ/judge_common.h"

namespace tare::econ {

Judgement Judge(const AmdahlClaim& claim) {
  if (auto missing = Missing({{"the part's speed-up", claim.part_speedup.has_value()},
                              {"the overall speed-up", claim.overall_speedup.has_value()}})) {
    return *missing;
  }
  const double part = claim.part_speedup->range().high;
  const double overall = claim.overall_speedup->range().low;
  if (overall > part) {
    return {Verdict::kImpossible,
            fmt::format("the whole cannot speed up {} when the part does {}",
                        claim.overall_speedup->text(), claim.part_speedup->text()),
            RelativeMargin(claim.overall_speedup->base(), claim.part_speedup->base())};
  }
  // 1 / (1 - f + f/s) >= S needs f >= (1 - 1/S) / (1 - 1/s).
  const double needed = part > 1 ? (1 - 1 / overall) / (1 - 1 / part) : 0;
  const std::string line =
      fmt::format("{} overall from {} of a part needs that part to be {} of the time",
                  claim.overall_speedup->text(), claim.part_speedup->text(), Percent(needed));
  if (!claim.part_share) {
    return {Verdict::kUnsupported, "not stated: the part's share; " + line, std::nullopt};
  }
  const double share = claim.part_share->range().high;
  const double most = 1 / (1 - share + share / part);
  const double margin = RelativeMargin(claim.overall_speedup->base(), most);
  if (share < needed) {
    return {
        Verdict::kImpossible,
        fmt::format("{}; it is {}, which allows {:.3g} x", line, claim.part_share->text(), most),
        margin};
  }
  return {Verdict::kPlausible, fmt::format("{}; it is {}", line, claim.part_share->text()), margin};
}

Judgement Judge(const LittleClaim& claim) {
  if (auto missing = Missing(
          {{"the rate", claim.rate.has_value()}, {"the time", claim.seconds.has_value()}})) {
    return *missing;
  }
  const Interval in_flight = claim.rate->range() * claim.seconds->range();
  const std::string how = fmt::format("{} x {} =", claim.rate->text(), claim.seconds->text());
  if (claim.in_flight) {
    return Compare(how, in_flight, claim.rate->base() * claim.seconds->base(), *claim.in_flight);
  }
  return {Verdict::kUnsupported,
          fmt::format("not stated: requests in flight; {} {} must be held at once", how,
                      FormatNumber(claim.rate->base() * claim.seconds->base())),
          std::nullopt};
}

Judgement Judge(const F1Claim& claim) {
  if (auto missing = Missing({{"precision", claim.precision.has_value()},
                              {"recall", claim.recall.has_value()},
                              {"F1", claim.stated.has_value()}})) {
    return *missing;
  }
  // 2pr/(p+r) rises in both, so the corners bound it.
  auto f1 = [](double p, double r) { return p + r > 0 ? 2 * p * r / (p + r) : 0; };
  const Interval p = claim.precision->range();
  const Interval r = claim.recall->range();
  return Compare(
      fmt::format("2 x {} x {} / their sum =", claim.precision->text(), claim.recall->text()),
      {f1(p.low, r.low), f1(p.high, r.high)}, f1(claim.precision->base(), claim.recall->base()),
      *claim.stated);
}

Judgement Judge(const AccuracyClaim& claim) {
  if (auto missing = Missing({{"accuracy", claim.accuracy.has_value()},
                              {"miss rate", claim.miss_rate.has_value()},
                              {"share of positives", claim.prevalence.has_value()}})) {
    return *missing;
  }
  const double positives = claim.prevalence->base();
  if (positives <= 0 || positives >= 1) {
    return {Verdict::kInconsistent, "a share of positives lies between 0 and 100 %", std::nullopt};
  }
  // errors = positives x misses + negatives x false alarms.
  const Interval errors = Interval::Of(1) - claim.accuracy->range();
  const Interval false_alarms =
      (errors - claim.miss_rate->range() * Interval::Of(positives)) / Interval::Of(1 - positives);
  const std::string line = fmt::format(
      "{} accuracy with {} missed of {} positives implies {} false alarms", claim.accuracy->text(),
      claim.miss_rate->text(), claim.prevalence->text(), Percent(false_alarms.Middle()));
  if (false_alarms.high < 0 || false_alarms.low > 1) {
    return {Verdict::kInconsistent, line + ", which cannot be", std::nullopt};
  }
  if (claim.false_alarm_rate && !false_alarms.Overlaps(claim.false_alarm_rate->range())) {
    return {Verdict::kInconsistent, line + ", not " + claim.false_alarm_rate->text(),
            RelativeMargin(claim.false_alarm_rate->base(), false_alarms.Middle())};
  }
  return {Verdict::kPlausible, line, std::nullopt};
}

Judgement Judge(const AvailabilityClaim& claim) {
  if (auto missing = Missing({{"availability", claim.availability.has_value()},
                              {"downtime", claim.downtime.has_value()},
                              {"period", claim.period.has_value()}})) {
    return *missing;
  }
  const Interval available =
      Interval::Of(1) - claim.downtime->range() / Interval::Of(claim.period->base());
  return Compare(fmt::format("1 - {} / {} =", claim.downtime->text(), claim.period->text()),
                 available, 1 - claim.downtime->base() / claim.period->base(), *claim.availability);
}

}  // namespace tare::econ
