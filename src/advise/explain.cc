#include "advise/explain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "advise/report_content.h"

namespace tare::advise {
namespace {

const std::string& NameAt(const Report& report, std::size_t index) {
  return report.candidates[index].candidate.name;
}

std::string CostAt(const Report& report, std::size_t index) {
  return FormatUsd(report.ranking.standings[index].usd_per_million_tokens);
}

// The cost candidates are ranked by, and what it is the cost of.
std::string RankedCost(const Report& report, std::size_t index, const Words& words) {
  return CostAt(report, index) + (report.plan.traffic ? words.Say("why.at_traffic") : "");
}

// "TTFT, 90th percentile 620 ms (limit 2.00 s)", joined.
std::string KeptLimits(const LevelResult& level, const Words& words) {
  std::vector<std::string> parts;
  for (const LimitCheck& check : level.checks) {
    parts.push_back(words.Say("why.limit", {{"what", NameOf(check.limit, words)},
                                            {"value", FormatSeconds(check.measured_s)},
                                            {"limit", FormatSeconds(check.limit.limit_s)}}));
  }
  return fmt::format("{}", fmt::join(parts, words.Say("list.separator")));
}

std::string BrokenLimits(const LevelResult& level, const Words& words) {
  std::vector<std::string> parts;
  for (const LimitCheck& check : level.checks) {
    if (check.state == LimitCheck::State::kMissed) {
      parts.push_back(words.Say("why.limit", {{"what", NameOf(check.limit, words)},
                                              {"value", FormatSeconds(check.measured_s)},
                                              {"limit", FormatSeconds(check.limit.limit_s)}}));
    } else if (check.state == LimitCheck::State::kUnproven) {
      parts.push_back(words.Say(
          "why.unproven", {{"what", NameOf(check.limit, words)},
                           {"n", fmt::format("{}", check.samples)},
                           {"needed", fmt::format("{}", SamplesNeeded(check.limit.percentile))}}));
    }
  }
  return fmt::format("{}", fmt::join(parts, words.Say("list.separator")));
}

std::string Saving(const Report& report, const Words& words) {
  const Ranking& ranking = report.ranking;
  // A lower end below −100 % means that the intervals of the two costs hardly tell them apart.
  const bool known = ranking.difference_low >= -1;
  return words.Say(known ? "why.saving" : "why.saving_uneven",
                   {{"name", NameAt(report, *ranking.first)},
                    {"cost", RankedCost(report, *ranking.first, words)},
                    {"share", FormatShare(ranking.difference)},
                    {"second", NameAt(report, *ranking.second)},
                    {"second_cost", CostAt(report, *ranking.second)},
                    {"low", FormatShare(ranking.difference_low)},
                    {"high", FormatShare(ranking.difference_high)}});
}

// Of the first two, those whose figures were not measured.
std::string UnmeasuredNames(const Report& report) {
  std::string names;
  for (const auto& index : {report.ranking.first, report.ranking.second}) {
    if (!index || report.candidates[*index].tag() == "measured") continue;
    names += (names.empty() ? "" : ", ") + report.candidates[*index].candidate.name;
  }
  return names;
}

// How far apart the costs could be, though their means are not.
std::string EqualInterval(const Report& report, const Words& words) {
  const Ranking& ranking = report.ranking;
  if (ranking.difference_low < -1) return words.Say("why.equal.uneven");
  return words.Say("why.equal.interval", {{"first", NameAt(report, *ranking.first)},
                                          {"low", FormatShare(ranking.difference_low)},
                                          {"high", FormatShare(ranking.difference_high)}});
}

// One sentence on whether the order of the first two holds at every level both were measured at.
void AddOtherLevels(const Report& report, const Words& words, std::vector<std::string>& out) {
  const CandidateResult& first = report.candidates[*report.ranking.first];
  const CandidateResult& second = report.candidates[*report.ranking.second];
  const double first_price = first.price.usd_per_hour * first.candidate.machines;
  const double second_price = second.price.usd_per_hour * second.candidate.machines;
  std::vector<std::string> reversed;
  std::size_t common = 0;
  for (const LevelResult& a : first.levels) {
    for (const LevelResult& b : second.levels) {
      if (a.level != b.level) continue;
      ++common;
      // Cost per token is price ÷ rate.
      if (first_price * b.rates.output_tokens_per_s > second_price * a.rates.output_tokens_per_s) {
        reversed.push_back(LevelText(report.plan.load, a.level, words));
      }
    }
  }
  if (common < 2) return;
  if (reversed.empty()) {
    out.push_back(words.Say("change.levels_same", {{"name", first.candidate.name}}));
  } else {
    out.push_back(words.Say(
        "change.levels_reversed",
        {{"name", second.candidate.name},
         {"levels", fmt::format("{}", fmt::join(reversed, words.Say("list.separator")))}}));
  }
}

void AddPrice(const Report& report, const Words& words, std::vector<std::string>& out) {
  const CandidateResult& first = report.candidates[*report.ranking.first];
  const CandidateResult& second = report.candidates[*report.ranking.second];
  const double first_price = first.price.usd_per_hour * first.candidate.machines;
  const double second_price = second.price.usd_per_hour * second.candidate.machines;
  if (first_price == second_price) {
    out.push_back(words.Say("change.price_same"));
    return;
  }
  econ::ServingCostInputs a{first_price, first.Shown()->rates, report.plan.utilisation};
  econ::ServingCostInputs b{second_price, second.Shown()->rates, report.plan.utilisation};
  if (const auto price = econ::BreakEvenUsdPerHour(a, b)) {
    out.push_back(words.Say("change.price", {{"name", first.candidate.name},
                                             {"price", FormatUsd(*price)},
                                             {"now", FormatUsd(first_price)},
                                             {"second", second.candidate.name}}));
  }
}

// What a month costs at so many tokens a day, in whole machines; infinite where it cannot be told.
double MonthlyBill(const Report& report, const CandidateResult& result, double tokens_per_day) {
  const econ::ServingCostInputs inputs{result.price.usd_per_hour * result.candidate.machines,
                                       result.Shown()->rates, report.plan.utilisation};
  const auto fleet = econ::FleetFor(inputs, {tokens_per_day, report.plan.traffic->peak_to_mean});
  return fleet ? fleet->usd_per_month : std::numeric_limits<double>::infinity();
}

// The traffic nearest to the plan's at which the second costs less, a hundredfold up and down.
void AddTraffic(const Report& report, const Words& words, std::vector<std::string>& out) {
  const CandidateResult& first = report.candidates[*report.ranking.first];
  const CandidateResult& second = report.candidates[*report.ranking.second];
  const double planned = report.plan.traffic->tokens_per_day;
  constexpr double kStep = 1.02, kFarthest = 100;
  for (double factor = kStep; factor < kFarthest; factor *= kStep) {
    for (const double tokens : {planned * factor, planned / factor}) {
      if (MonthlyBill(report, second, tokens) >= MonthlyBill(report, first, tokens)) continue;
      out.push_back(words.Say("change.traffic", {{"tokens", FormatFigure(tokens / 1e6)},
                                                 {"now", FormatFigure(planned / 1e6)},
                                                 {"name", second.candidate.name}}));
      return;
    }
  }
  out.push_back(words.Say("change.traffic_same",
                          {{"name", first.candidate.name}, {"second", second.candidate.name}}));
}

// The price at which the first one's machines cost as much a month as the second one's.
void AddFleetPrice(const Report& report, const Words& words, std::vector<std::string>& out) {
  const CandidateResult& first = report.candidates[*report.ranking.first];
  const CandidateResult& second = report.candidates[*report.ranking.second];
  if (!first.fleet || !second.fleet || !(first.fleet->usd_per_month > 0)) return;
  const double now = first.price.usd_per_hour * first.candidate.machines;
  const double price = now * second.fleet->usd_per_month / first.fleet->usd_per_month;
  out.push_back(words.Say("change.price", {{"name", first.candidate.name},
                                           {"price", FormatUsd(price)},
                                           {"now", FormatUsd(now)},
                                           {"second", second.candidate.name}}));
}

// How many tokens a day one machine of the weaker of the two still carries: up to there the choice
// does not show on the bill.
void AddVolume(const Report& report, const Words& words, std::vector<std::string>& out) {
  const CandidateResult& first = report.candidates[*report.ranking.first];
  const CandidateResult& second = report.candidates[*report.ranking.second];
  const double first_price = first.price.usd_per_hour * first.candidate.machines;
  if (first_price != second.price.usd_per_hour * second.candidate.machines) return;
  const auto tokens_per_day = [&](const CandidateResult& result) {
    const econ::ServingRates& rates = result.Shown()->rates;
    return (rates.input_tokens_per_s + rates.output_tokens_per_s) * 86400;
  };
  const double weaker = std::min(tokens_per_day(first), tokens_per_day(second));
  out.push_back(
      words.Say("change.volume", {{"tokens", FormatFigure(weaker / 1e6)},
                                  {"usd", FormatUsd(first_price * econ::kHoursPerMonth)}}));
}

void AddHeadroom(const Report& report, const Words& words, std::vector<std::string>& out) {
  const CandidateResult& first = report.candidates[*report.ranking.first];
  for (const LimitCheck& check : first.Shown()->checks) {
    if (check.state != LimitCheck::State::kMet) continue;
    out.push_back(words.Say("change.limit", {{"what", NameOf(check.limit, words)},
                                             {"value", FormatSeconds(check.measured_s)},
                                             {"limit", FormatSeconds(check.limit.limit_s)},
                                             {"name", first.candidate.name}}));
  }
}

double MostOthersShare(const Report& report) {
  double most = 0;
  for (const CandidateResult& result : report.candidates) {
    if (result.Shown() != nullptr) most = std::max(most, result.Shown()->others_share.value_or(0));
  }
  return most;
}

bool AnyValid(const Report& report) {
  return std::any_of(report.candidates.begin(), report.candidates.end(),
                     [](const CandidateResult& result) {
                       return result.Shown() != nullptr && result.Shown()->invalid.empty();
                     });
}

}  // namespace

std::string Headline(const Report& report, const Words& words) {
  const Ranking& ranking = report.ranking;
  switch (ranking.verdict) {
    case Verdict::kPick:
      return words.Say("headline.pick", {{"name", NameAt(report, *ranking.pick)}});
    case Verdict::kNoneFeasible:
      return words.Say(AnyValid(report) ? "headline.none" : "headline.invalid");
    case Verdict::kTooClose:
      return words.Say("headline.too_close", {{"first", NameAt(report, *ranking.first)},
                                              {"second", NameAt(report, *ranking.second)}});
    case Verdict::kEqual:
      return words.Say("headline.equal", {{"first", NameAt(report, *ranking.first)},
                                          {"second", NameAt(report, *ranking.second)}});
    case Verdict::kDisturbed:
      return words.Say("headline.disturbed");
    case Verdict::kLevelsUnsure:
      return words.Say("headline.levels_unsure", {{"name", NameAt(report, *ranking.first)}});
  }
  return "";
}

std::string WhyOut(const CandidateResult& result, const Report& report, const Words& words) {
  if (result.feasible()) return "";
  if (!result.impossible.empty()) return words.Say("out.impossible", {{"why", result.impossible}});
  if (!result.error.empty()) return words.Say("out.error");
  if (!result.quality_kept) {
    return words.Say("out.quality", {{"value", FormatFigure(result.candidate.quality->value)},
                                     {"metric", result.candidate.quality->metric}});
  }
  const LevelResult* level = result.Shown();
  if (level == nullptr) return words.Say("out.error");
  const std::string at = LevelText(report.plan.load, level->level, words);
  if (!level->invalid.empty()) {
    return words.Say("out.invalid", {{"reason", level->invalid[0]}, {"level", at}});
  }
  if (!level->errors_kept) {
    return words.Say("out.errors", {{"share", FormatShare(level->error_share)}, {"level", at}});
  }
  return words.Say("out.levels", {{"limits", BrokenLimits(*level, words)}, {"level", at}});
}

std::vector<std::string> Why(const Report& report, const Words& words) {
  const Ranking& ranking = report.ranking;
  std::vector<std::string> why;
  if (ranking.first) {
    const CandidateResult& first = report.candidates[*ranking.first];
    const LevelResult& level = *first.Shown();
    switch (ranking.verdict) {
      case Verdict::kEqual:
        why.push_back(words.Say("why.equal", {{"first", NameAt(report, *ranking.first)},
                                              {"cost", RankedCost(report, *ranking.first, words)},
                                              {"second", NameAt(report, *ranking.second)},
                                              {"second_cost", CostAt(report, *ranking.second)},
                                              {"share", FormatShare(report.plan.min_difference)},
                                              {"interval", EqualInterval(report, words)}}));
        break;
      case Verdict::kTooClose:
        why.push_back(Saving(report, words));
        if (const std::string names = UnmeasuredNames(report); !names.empty()) {
          why.push_back(words.Say("why.measure_these",
                                  {{"names", names},
                                   {"p", FormatShare(ranking.standings[*ranking.first].p_best)},
                                   {"confidence", FormatShare(report.plan.confidence)}}));
          break;
        }
        why.push_back(
            words.Say("why.measure_more",
                      {{"factor", fmt::format("{:.0f}", std::ceil(ranking.measurement_factor))},
                       {"p", FormatShare(ranking.standings[*ranking.first].p_best)},
                       {"confidence", FormatShare(report.plan.confidence)}}));
        break;
      case Verdict::kDisturbed:
        why.push_back(Saving(report, words));
        why.push_back(words.Say("why.disturbed", {{"share", FormatShare(MostOthersShare(report))},
                                                  {"first", first.candidate.name}}));
        break;
      case Verdict::kLevelsUnsure:
        why.push_back(
            words.Say("why.levels_unsure", {{"name", first.candidate.name},
                                            {"p", FormatShare(level.SloProbability())},
                                            {"confidence", FormatShare(report.plan.confidence)}}));
        break;
      default:
        if (ranking.second) {
          why.push_back(Saving(report, words));
        } else {
          why.push_back(words.Say(report.candidates.size() == 1 ? "why.single" : "why.only",
                                  {{"name", first.candidate.name},
                                   {"cost", RankedCost(report, *ranking.first, words)}}));
        }
    }
    const std::string at = LevelText(report.plan.load, level.level, words);
    why.push_back(level.checks.empty()
                      ? words.Say("why.no_limits")
                      : words.Say("why.keeps", {{"name", first.candidate.name},
                                                {"level", at},
                                                {"limits", KeptLimits(level, words)}}));
  }
  for (const CandidateResult& result : report.candidates) {
    if (result.feasible()) continue;
    why.push_back(words.Say(
        "why.out", {{"name", result.candidate.name}, {"reason", WhyOut(result, report, words)}}));
  }
  return why;
}

std::vector<std::string> WouldChange(const Report& report, const Words& words) {
  std::vector<std::string> out;
  if (!report.ranking.first) {
    out.push_back(words.Say(AnyValid(report) ? "change.none" : "change.invalid"));
    return out;
  }
  if (report.ranking.second && report.plan.traffic) {
    AddTraffic(report, words, out);
    AddFleetPrice(report, words, out);
  } else if (report.ranking.second) {
    AddVolume(report, words, out);
    AddOtherLevels(report, words, out);
    AddPrice(report, words, out);
  }
  AddHeadroom(report, words, out);
  if (report.plan.utilisation == 1 && !report.plan.traffic)
    out.push_back(words.Say("change.utilisation"));
  return out;
}

}  // namespace tare::advise
