#include "econ/scenario_report.h"

#include <cmath>

#include "econ/scenario_words.h"

namespace tare::econ {
namespace {

nlohmann::json NumberOrNull(double value) {
  return std::isfinite(value) && value != 0 ? nlohmann::json(value) : nlohmann::json(nullptr);
}

nlohmann::json OptionJson(const Scenario& scenario, const ScenarioAnswer& answer,
                          std::size_t index) {
  const TcoResult& result = answer.options[index];
  nlohmann::json years = nlohmann::json::array();
  for (const YearCosts& year : result.years) {
    years.push_back({{"purchase", year.purchase},
                     {"depreciation", year.depreciation},
                     {"rent", year.rent},
                     {"energy", year.energy},
                     {"licence", year.licence},
                     {"staff", year.staff},
                     {"other", year.other},
                     {"tokens", year.tokens},
                     {"revenue", year.revenue}});
  }
  nlohmann::json json = {
      {"name", scenario.options[index].name},
      {"npv", result.npv},
      {"present_cost", result.present_cost},
      {"cost_first_year", result.cost_first_year},
      {"cost_per_request", result.per_request},
      {"cost_per_million_tokens",
       {{"blended", result.per_million_blended},
        {"input", NumberOrNull(result.per_million_input)},
        {"output", NumberOrNull(result.per_million_output)},
        {"goodput", result.per_million_goodput}}},
      {"instances",
       {{"peak", result.first_year.peak_instances},
        {"mean", result.first_year.mean_instances},
        {"idle_share",
         result.first_year.mean_instances > 0 ? 1 - result.first_year.busy_share : 0.0}}},
      {"requests_per_second_per_money_month", result.requests_per_second_per_money_month},
      {"resale", result.resale},
      {"years", std::move(years)}};
  if (const auto& measured = scenario.options[index].measured) {
    json["capacity"] = {{"requests_per_second", measured->requests_per_second},
                        {"interpolated", measured->interpolated},
                        {"may_do_more", measured->at_the_end},
                        {"tag", measured->tag}};
  }
  if (answer.monte_carlo.draws > 0) {
    const OutcomeSummary& summary = answer.monte_carlo.options[index];
    json["present_cost_distribution"] = {
        {"mean", summary.mean}, {"p10", summary.p10}, {"p50", summary.p50}, {"p90", summary.p90}};
    json["p_cheapest"] = answer.monte_carlo.p_lowest[index];
  }
  nlohmann::json tornado = nlohmann::json::array();
  for (const TornadoBar& bar : answer.tornados[index]) {
    if (bar.swing() == 0) continue;
    tornado.push_back({{"input", InputName(scenario, bar.input)},
                       {"input_p10", bar.input_low},
                       {"input_p90", bar.input_high},
                       {"present_cost_at_p10", bar.outcome_low},
                       {"present_cost_at_p90", bar.outcome_high}});
  }
  json["tornado"] = std::move(tornado);
  nlohmann::json curve = nlohmann::json::array();
  for (const VolumePoint& point : answer.curves[index]) {
    curve.push_back({{"tokens_per_day", point.tokens_per_day},
                     {"cost_per_million_tokens", point.per_million},
                     {"busy_share", point.busy_share}});
  }
  json["curve"] = std::move(curve);
  return json;
}

}  // namespace

nlohmann::json ScenarioJson(const Scenario& scenario, const ScenarioAnswer& answer) {
  nlohmann::json options = nlohmann::json::array();
  for (std::size_t i = 0; i < answer.options.size(); ++i) {
    options.push_back(OptionJson(scenario, answer, i));
  }
  nlohmann::json pairs = nlohmann::json::array();
  for (const PairAnswer& pair : answer.pairs) {
    nlohmann::json crossings = nlohmann::json::array();
    for (const Crossing& crossing : pair.break_even) {
      crossings.push_back(
          {{"tokens_per_day", crossing.tokens_per_day},
           {"cheaper_above", scenario.options[crossing.b_cheaper_above ? pair.b : pair.a].name}});
    }
    nlohmann::json json = {{"a", scenario.options[pair.a].name},
                           {"b", scenario.options[pair.b].name},
                           {"break_even", std::move(crossings)},
                           {"npv_of_b_over_a", pair.change.npv},
                           {"irr", nullptr},
                           {"payback_years", nullptr}};
    if (pair.change.irr) json["irr"] = pair.change.irr->rate_per_year;
    if (pair.change.payback_years) json["payback_years"] = *pair.change.payback_years;
    if (answer.monte_carlo.draws > 0) {
      json["p_a_cheaper"] = answer.monte_carlo.p_lower[pair.a][pair.b];
    }
    pairs.push_back(std::move(json));
  }
  nlohmann::json inputs = nlohmann::json::array();
  for (std::size_t i = 0; i < scenario.inputs.size(); ++i) {
    const UncertainInput& input = scenario.inputs[i];
    inputs.push_back({{"name", input.name},
                      {"value", input.value},
                      {"unit", scenario.units[i]},
                      {"source", input.source},
                      {"date", input.date},
                      {"uncertain", input.uncertain()}});
  }
  nlohmann::json json = {{"name", scenario.name},
                         {"currency", scenario.currency},
                         {"years", scenario.horizon.years},
                         {"discounting",
                          {{"rate", scenario.horizon.discounting.rate_per_year},
                           {"timing", ToString(scenario.horizon.discounting.timing)}}},
                         {"options", std::move(options)},
                         {"pairs", std::move(pairs)},
                         {"inputs", std::move(inputs)}};
  if (answer.monte_carlo.draws > 0) {
    json["monte_carlo"] = {{"draws", answer.monte_carlo.draws}, {"seed", answer.monte_carlo.seed}};
  }
  if (!answer.matrix.rows.empty()) {
    json["sensitivity"] = {{"option", scenario.options.front().name},
                           {"rows", InputName(scenario, answer.matrix_row)},
                           {"row_values", answer.matrix.rows},
                           {"columns", InputName(scenario, answer.matrix_column)},
                           {"column_values", answer.matrix.columns},
                           {"present_cost", answer.matrix.cells}};
  }
  return json;
}

}  // namespace tare::econ
