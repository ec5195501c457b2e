#include "advise/report_json.h"

#include <cmath>

#include "advise/explain.h"
#include "advise/report_content.h"

namespace tare::advise {
namespace {

using nlohmann::json;

json NumberOrNull(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

const char* ToString(LimitCheck::State state) {
  switch (state) {
    case LimitCheck::State::kMet:
      return "met";
    case LimitCheck::State::kMissed:
      return "missed";
    case LimitCheck::State::kUnproven:
      return "unproven";
  }
  return "";
}

json LevelJson(const LevelResult& level, const LoadPlan& load) {
  json latency = json::object();
  for (const Metric metric : kMetrics) {
    const auto m = static_cast<std::size_t>(metric);
    json figures = {{"n", level.samples[m]}, {"max", NumberOrNull(level.max_s[m])}};
    for (const Percentile percentile : kPercentiles) {
      figures[tare::advise::ToString(percentile)] =
          NumberOrNull(level.percentile_s[m][static_cast<std::size_t>(percentile)]);
    }
    latency[tare::advise::ToString(metric)] = std::move(figures);
  }
  json checks = json::array();
  for (const LimitCheck& check : level.checks) {
    checks.push_back({{"metric", tare::advise::ToString(check.limit.metric)},
                      {"percentile", tare::advise::ToString(check.limit.percentile)},
                      {"limit_s", check.limit.limit_s},
                      {"measured_s", NumberOrNull(check.measured_s)},
                      {"state", ToString(check.state)},
                      {"probability", check.probability}});
  }
  return {{load.open_loop ? "rate_per_s" : "users", level.level},
          {"tag", level.tag},
          {"keeps_levels", level.KeepsLevels()},
          {"requests", {{"total", level.total}, {"ok", level.ok}, {"failed", level.failed}}},
          {"rates",
           {{"requests_per_s", level.rates.requests_per_s},
            {"input_tokens_per_s", level.rates.input_tokens_per_s},
            {"output_tokens_per_s", level.rates.output_tokens_per_s},
            {"relative_error", level.rate_error.relative_error},
            {"degrees_of_freedom", level.rate_error.degrees_of_freedom},
            {"rounds", level.rate_error.rounds}}},
          {"latency_s", latency},
          {"checks", checks},
          {"invalid", level.invalid},
          {"mean_error_of_such_figures",
           {{"rate", level.prediction_error}, {"first_token", level.first_token_error}}},
          {"cpu_share_of_others", level.others_share ? json(*level.others_share) : json(nullptr)},
          {"memory", {{"peak_bytes", level.peak_memory_bytes}}},
          {"runs", level.runs}};
}

json CandidateJson(const CandidateResult& result, const Standing& standing, const Report& report,
                   const Words& words) {
  json levels = json::array();
  for (const LevelResult& level : result.levels) {
    levels.push_back(LevelJson(level, report.plan.load));
  }
  json one = {{"name", result.candidate.name},
              {"tag", result.tag()},
              {"slo_met", result.feasible()},
              {"out_because", WhyOut(result, report, words)},
              {"cost_per_million_tokens", NumberOrNull(standing.usd_per_million_tokens)},
              {"cost_interval95", {NumberOrNull(standing.low), NumberOrNull(standing.high)}},
              {"p_best", standing.p_best},
              {"price",
               {{"usd_per_hour", result.price.usd_per_hour},
                {"machines", result.candidate.machines},
                {"tag", result.price.tag},
                {"source", result.price.source},
                {"date", result.price.date}}},
              {"command", result.command},
              {"levels", levels}};
  if (result.operating) one["judged_at"] = *result.operating;
  if (result.ready_s) one["ready_s"] = *result.ready_s;
  if (!result.error.empty()) one["error"] = result.error;
  if (result.cost) {
    one["cost"] = {
        {"usd_per_million_tokens", result.cost->usd_per_million_tokens},
        {"usd_per_million_input_tokens", NumberOrNull(result.cost->usd_per_million_input_tokens)},
        {"usd_per_million_output_tokens", NumberOrNull(result.cost->usd_per_million_output_tokens)},
        {"usd_per_thousand_requests", NumberOrNull(result.cost->usd_per_thousand_requests)},
        {"requests_per_s_per_usd_month", NumberOrNull(result.cost->requests_per_s_per_usd_month)}};
  }
  if (result.fleet) {
    one["fleet"] = {{"machines", result.fleet->machines},
                    {"usd_per_month", result.fleet->usd_per_month},
                    {"utilisation", result.fleet->utilisation}};
  }
  if (result.candidate.quality) {
    one["quality"] = {{"metric", result.candidate.quality->metric},
                      {"value", result.candidate.quality->value},
                      {"source", result.candidate.quality->source},
                      {"tag", "claimed"}};
  }
  return one;
}

}  // namespace

json ToJson(const Report& report) {
  const Words words(Language::kEnglish);
  const Ranking& ranking = report.ranking;
  json answer;
  std::string why = Headline(report, words);
  for (const std::string& sentence : Why(report, words)) why += " " + sentence;
  if (ranking.pick) {
    answer["pick"] = report.candidates[*ranking.pick].candidate.name;
  } else {
    answer["abstain"] = tare::advise::ToString(ranking.verdict);
  }
  answer["why"] = why;
  answer["would_change"] = WouldChange(report, words);
  if (ranking.first) answer["first"] = report.candidates[*ranking.first].candidate.name;
  if (ranking.second) {
    answer["second"] = report.candidates[*ranking.second].candidate.name;
    answer["difference"] = ranking.difference;
    answer["difference_interval95"] = {ranking.difference_low, ranking.difference_high};
  }

  json candidates = json::array();
  for (const std::size_t index : ranking.order) {
    candidates.push_back(
        CandidateJson(report.candidates[index], ranking.standings[index], report, words));
  }
  json claims = json::array();
  for (const CandidateResult& result : report.candidates) {
    for (const econ::JudgedClaim& judged : result.claims) {
      claims.push_back({{"candidate", result.candidate.name},
                        {"id", judged.claim.id},
                        {"says", judged.claim.says},
                        {"where", judged.claim.where},
                        {"verdict", econ::ToString(judged.judgement.verdict)},
                        {"arithmetic", judged.judgement.arithmetic}});
    }
  }
  json evidence = json::array();
  for (const Evidence& one : ContentOf(report, words).evidence) {
    evidence.push_back({{"id", one.id},
                        {"candidate", one.candidate},
                        {"what", one.what},
                        {"value", one.value},
                        {"unit", one.unit},
                        {"tag", one.tag},
                        {"source", one.source}});
  }
  return {
      {"schema", "tare.report/1"},
      {"made_at", report.made_at},
      {"tare_version", report.tare_version},
      {"took_s", report.took_s},
      {"machine", ToJson(report.machine)},
      {"plan",
       {{"name", report.plan.name}, {"source", report.plan.source}, {"text", report.plan.text}}},
      {"answer", answer},
      {"candidates", candidates},
      {"claims", claims},
      {"evidence", evidence}};
}

}  // namespace tare::advise
