// Claims about money: present values under every usual timing, break-even volumes, token prices.
#include <cmath>

#include "econ/judge_common.h"
#include "econ/maas.h"
#include "econ/volume_cost.h"

namespace tare::econ {
namespace {

constexpr double kSecondsPerHour = 3600;
constexpr double kSecondsPerYear = 365 * 86400.0;

Interval PresentValueRange(const std::vector<Figure>& flows, double rate, Timing timing) {
  std::vector<double> low;
  std::vector<double> high;
  for (const Figure& flow : flows) {
    low.push_back(flow->range().low);
    high.push_back(flow->range().high);
  }
  const Discounting discounting{rate, 1, timing};
  return {PresentValue(low, discounting), PresentValue(high, discounting)};
}

}  // namespace

Judgement Judge(const PresentValueClaim& claim) {
  bool flows_given = !claim.flows.empty();
  for (const Figure& flow : claim.flows) flows_given = flows_given && flow.has_value();
  if (auto missing = Missing({{"every cash flow", flows_given},
                              {"the discount rate", claim.rate.has_value()},
                              {"the present value", claim.stated.has_value()}})) {
    return *missing;
  }
  const double outlay = claim.outlay ? claim.outlay->base() : 0;
  const Published& stated = *claim.stated;
  const double rate = claim.rate->base();
  std::string results;
  std::optional<Timing> fitting;
  double nearest = 0;
  for (Timing timing : {Timing::kEnd, Timing::kMiddle, Timing::kStart}) {
    if (claim.timing && *claim.timing != timing) continue;
    const Interval value = PresentValueRange(claim.flows, rate, timing) - Interval::Of(outlay);
    results += fmt::format("{}{} ({} of year)", results.empty() ? "" : ", ",
                           stated.Show(value.Middle()), ToString(timing));
    if (results.find(',') == std::string::npos ||
        std::abs(value.Middle() - stated.base()) < std::abs(nearest - stated.base())) {
      nearest = value.Middle();
    }
    if (!fitting && value.Overlaps(stated.range())) {
      fitting = timing;
      nearest = value.Middle();
    }
  }
  Judgement judgement;
  judgement.margin = RelativeMargin(stated.base(), nearest);
  judgement.arithmetic = fmt::format("at {}: {}", claim.rate->text(), results);
  if (fitting) {
    judgement.arithmetic +=
        fmt::format("; {} is the {}-of-year value", stated.text(), ToString(*fitting));
    return judgement;
  }
  judgement.verdict = Verdict::kInconsistent;
  judgement.arithmetic += fmt::format(", not {}", stated.text());
  std::vector<double> flows;
  for (const Figure& flow : claim.flows) flows.push_back(flow->base());
  const auto other = InternalRateOfReturn(outlay + stated.base(), flows, {0, 1, Timing::kEnd});
  if (other) {
    judgement.arithmetic +=
        fmt::format("; it would take {} at year ends", Percent(other->rate_per_year));
  }
  return judgement;
}

Judgement Judge(const BreakEvenClaim& claim) {
  if (auto missing = Missing({{"fixed cost of the first", claim.fixed_a.has_value()},
                              {"cost per token of the first", claim.variable_a.has_value()},
                              {"fixed cost of the second", claim.fixed_b.has_value()},
                              {"cost per token of the second", claim.variable_b.has_value()},
                              {"the stated volume", claim.stated.has_value()}})) {
    return *missing;
  }
  // Money a second over money a token is tokens a second, whatever the units written.
  const Interval fixed = claim.fixed_b->range() - claim.fixed_a->range();
  const Interval saving = claim.variable_a->range() - claim.variable_b->range();
  const double exact = (claim.fixed_b->base() - claim.fixed_a->base()) /
                       (claim.variable_a->base() - claim.variable_b->base());
  if (!std::isfinite(exact) || exact <= 0) {
    return {Verdict::kInconsistent, "one option is cheaper at every volume: there is no break-even",
            std::nullopt};
  }
  const Interval volume = fixed / saving;
  Judgement judgement;
  judgement.margin = RelativeMargin(claim.stated->base(), exact);
  const bool agrees = volume.Overlaps(claim.stated->range());
  judgement.verdict = agrees ? Verdict::kPlausible : Verdict::kInconsistent;
  judgement.arithmetic =
      fmt::format("{} of fixed cost / {} a million tokens = {} tokens/day, {} {}",
                  FormatNumber((claim.fixed_b->base() - claim.fixed_a->base()) * kSecondsPerYear),
                  FormatNumber((claim.variable_a->base() - claim.variable_b->base()) * 1e6),
                  FormatSi(exact * 86400), agrees ? "as stated:" : "not", claim.stated->text());
  return judgement;
}

Judgement Judge(const TokenCostClaim& claim) {
  if (auto missing = Missing({{"price per hour", claim.price_per_hour.has_value()},
                              {"tokens per second", claim.tokens_per_second.has_value()},
                              {"the stated cost", claim.stated.has_value()}})) {
    return *missing;
  }
  const Interval one = Interval::Of(1);
  const Interval devices = claim.devices ? claim.devices->range() : one;
  const Interval used = claim.utilisation ? claim.utilisation->range() : one;
  const Interval cost =
      claim.price_per_hour->range() * devices / (claim.tokens_per_second->range() * used);
  const double tokens_per_hour = claim.tokens_per_second->base() * used.Middle() * kSecondsPerHour;
  return Compare(fmt::format("{} x {} / {} tokens/h =", claim.price_per_hour->text(),
                             FormatNumber(devices.Middle()), FormatSi(tokens_per_hour)),
                 cost,
                 claim.price_per_hour->base() * devices.Middle() /
                     (claim.tokens_per_second->base() * used.Middle()),
                 *claim.stated);
}

}  // namespace tare::econ
