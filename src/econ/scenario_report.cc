#include "econ/scenario_report.h"

#include <algorithm>
#include <cmath>

#include "base/html.h"
#include "econ/html.h"
#include "econ/quantity.h"
#include "econ/svg_chart.h"

namespace tare::econ {
namespace {

std::string CrossingText(const Scenario& scenario, const PairAnswer& pair,
                         const Crossing& crossing) {
  const std::string& cheaper = scenario.options[crossing.b_cheaper_above ? pair.b : pair.a].name;
  return fmt::format("above {} tokens/day {} is cheaper", FormatSi(crossing.tokens_per_day),
                     cheaper);
}

nlohmann::json NumberOrNull(double value) {
  return std::isfinite(value) && value != 0 ? nlohmann::json(value) : nlohmann::json(nullptr);
}

std::string InputText(const Scenario& scenario, std::size_t input, double value) {
  std::string unit = scenario.units[input];
  if (const std::size_t at = unit.find("MONEY"); at != std::string::npos) {
    unit.replace(at, 5, scenario.currency);
  }
  if (unit == "1/year") return fmt::format("{:.3g} %/year", value * 100);
  return unit == "1" ? FormatNumber(value) : fmt::format("{} {}", FormatNumber(value), unit);
}

// "options[0].energy.price" -> "self-built: energy.price".
std::string InputName(const Scenario& scenario, std::size_t input) {
  const std::string& path = scenario.inputs[input].name;
  for (std::size_t option = 0; option < scenario.options.size(); ++option) {
    const std::string prefix = fmt::format("options[{}].", option);
    if (path.compare(0, prefix.size(), prefix) == 0) {
      return fmt::format("{}: {}", scenario.options[option].name, path.substr(prefix.size()));
    }
  }
  return path;
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

std::string ScenarioText(const Scenario& scenario, const ScenarioAnswer& answer) {
  const std::string& money = scenario.currency;
  std::string text =
      fmt::format("{}\n{} years, {} at {:.3g} % a year ({} of period)\n\n", scenario.name,
                  scenario.horizon.years, money, scenario.horizon.discounting.rate_per_year * 100,
                  ToString(scenario.horizon.discounting.timing));
  text += fmt::format("{:<24}{:>16}{:>16}{:>14}{:>14}{:>10}{:>8}\n", "option", "present cost",
                      "first year", "per Mtoken", "per request", "instances", "idle");
  for (std::size_t i = 0; i < answer.options.size(); ++i) {
    const TcoResult& r = answer.options[i];
    const bool own = r.first_year.mean_instances > 0;
    text += fmt::format("{:<24}{:>16}{:>16}{:>14.4g}{:>14.4g}{:>10}{:>8}\n",
                        scenario.options[i].name, FormatNumber(r.present_cost),
                        FormatNumber(r.cost_first_year), r.per_million_blended, r.per_request,
                        own ? fmt::format("{:.3g}", r.first_year.mean_instances) : "-",
                        own ? fmt::format("{:.0f} %", (1 - r.first_year.busy_share) * 100) : "-");
  }
  text += "\n";
  for (const PairAnswer& pair : answer.pairs) {
    text += fmt::format("{} or {}: ", scenario.options[pair.a].name, scenario.options[pair.b].name);
    if (pair.break_even.empty()) {
      text += "no break-even between a hundredth and a hundred times the demand";
    }
    for (std::size_t i = 0; i < pair.break_even.size(); ++i) {
      text += (i > 0 ? ", " : "") + CrossingText(scenario, pair, pair.break_even[i]);
    }
    if (pair.change.irr) {
      text += fmt::format("; the second returns {:.3g} % a year on its extra outlay",
                          pair.change.irr->rate_per_year * 100);
    }
    if (pair.change.payback_years) {
      text += fmt::format(", paid back in {:.2f} years", *pair.change.payback_years);
    }
    text += "\n";
  }
  if (answer.monte_carlo.draws > 0) {
    text += fmt::format("\n{} draws, seed {}; present cost\n", answer.monte_carlo.draws,
                        answer.monte_carlo.seed);
    for (std::size_t i = 0; i < answer.options.size(); ++i) {
      const OutcomeSummary& s = answer.monte_carlo.options[i];
      text += fmt::format("{:<24} P10 {}  P50 {}  P90 {}  cheapest in {:.1f} %\n",
                          scenario.options[i].name, FormatNumber(s.p10), FormatNumber(s.p50),
                          FormatNumber(s.p90), answer.monte_carlo.p_lowest[i] * 100);
    }
    text += fmt::format("\nwhat moves {} most (input at its P10 and P90)\n",
                        scenario.options.front().name);
    std::size_t shown = 0;
    for (const TornadoBar& bar : answer.tornados.front()) {
      if (bar.swing() == 0 || ++shown > 8) break;
      text += fmt::format("  {:<40} {} .. {}\n", InputName(scenario, bar.input),
                          FormatNumber(bar.outcome_low), FormatNumber(bar.outcome_high));
    }
  }
  return text;
}

std::string ScenarioHtml(const Scenario& scenario, const ScenarioAnswer& answer) {
  const std::string& money = scenario.currency;
  std::string body = fmt::format(
      "<h1>{}</h1>\n<p class=\"note\">{} years, amounts in {}, discounted at {:.3g} % a year ({} "
      "of "
      "period); {} requests a day of {} input and {} output tokens.</p>\n",
      EscapeHtml(scenario.name), scenario.horizon.years, money,
      scenario.horizon.discounting.rate_per_year * 100,
      ToString(scenario.horizon.discounting.timing),
      FormatNumber(scenario.traffic.requests_per_day),
      FormatNumber(scenario.traffic.input_tokens_per_request),
      FormatNumber(scenario.traffic.output_tokens_per_request));
  body +=
      "<table>\n<tr><th>Option</th><th class=\"n\">Present cost</th><th class=\"n\">First year</th>"
      "<th class=\"n\">per M tokens</th><th class=\"n\">per request</th><th class=\"n\">Instances "
      "(peak)</th><th class=\"n\">Idle</th></tr>\n";
  for (std::size_t i = 0; i < answer.options.size(); ++i) {
    const TcoResult& r = answer.options[i];
    const bool own = r.first_year.mean_instances > 0;
    body += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{:.4g}</td>"
        "<td class=\"n\">{:.4g}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
        EscapeHtml(scenario.options[i].name), FormatNumber(r.present_cost),
        FormatNumber(r.cost_first_year), r.per_million_blended, r.per_request,
        own ? fmt::format("{:.3g} ({:.0f})", r.first_year.mean_instances,
                          r.first_year.peak_instances)
            : "-",
        own ? fmt::format("{:.0f} %", (1 - r.first_year.busy_share) * 100) : "-");
  }
  body += "</table>\n";

  std::vector<ChartLine> lines;
  std::vector<ChartMark> marks;
  for (std::size_t i = 0; i < answer.curves.size(); ++i) {
    ChartLine line{scenario.options[i].name, {}};
    for (const VolumePoint& p : answer.curves[i]) {
      line.points.emplace_back(p.tokens_per_day, p.per_million);
    }
    lines.push_back(std::move(line));
  }
  for (const PairAnswer& pair : answer.pairs) {
    for (const Crossing& crossing : pair.break_even) {
      marks.push_back({crossing.tokens_per_day, CrossingText(scenario, pair, crossing)});
    }
  }
  marks.push_back(
      {scenario.traffic.requests_per_day * scenario.traffic.tokens_per_request(), "this demand"});
  body += "<h2>Cost against volume</h2>\n<figure>" +
          LineChart(lines, marks, "tokens a day", money + " per million tokens") +
          "<figcaption>First-year cost per million tokens, everything included; dashed: the demand "
          "and the break-even volumes. The same hardware costs many times more a token when it "
          "idles.</figcaption></figure>\n";

  if (answer.monte_carlo.draws > 0) {
    std::vector<ChartHistogram> histograms;
    for (std::size_t i = 0; i < answer.options.size(); ++i) {
      const OutcomeSummary& s = answer.monte_carlo.options[i];
      histograms.push_back(
          {scenario.options[i].name, s.histogram_low, s.histogram_high, s.histogram});
    }
    body += "<h2>How sure</h2>\n<figure>" + HistogramChart(histograms, "present cost, " + money) +
            fmt::format("<figcaption>{} draws, seed {}.</figcaption></figure>\n",
                        FormatNumber(static_cast<double>(answer.monte_carlo.draws)),
                        answer.monte_carlo.seed);
    body +=
        "<table>\n<tr><th>Option</th><th class=\"n\">P10</th><th class=\"n\">P50</th><th "
        "class=\"n\">P90</th><th class=\"n\">Cheapest in</th></tr>\n";
    for (std::size_t i = 0; i < answer.options.size(); ++i) {
      const OutcomeSummary& s = answer.monte_carlo.options[i];
      body += fmt::format(
          "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td "
          "class=\"n\">{}</td><td class=\"n\">{:.1f} %</td></tr>\n",
          EscapeHtml(scenario.options[i].name), FormatNumber(s.p10), FormatNumber(s.p50),
          FormatNumber(s.p90), answer.monte_carlo.p_lowest[i] * 100);
    }
    body += "</table>\n";
  }
  for (std::size_t i = 0; i < answer.tornados.size(); ++i) {
    std::vector<ChartBar> bars;
    for (const TornadoBar& bar : answer.tornados[i]) {
      if (bar.swing() == 0 || bars.size() >= 10) break;
      bars.push_back({InputName(scenario, bar.input), bar.outcome_low, bar.outcome_high,
                      InputText(scenario, bar.input, bar.input_low),
                      InputText(scenario, bar.input, bar.input_high)});
    }
    if (bars.empty()) continue;
    body += fmt::format(
        "<h2>What moves {}</h2>\n<figure>{}<figcaption>Present cost with one input "
        "at its 10th and 90th percentile, the others at their estimates."
        "</figcaption></figure>\n",
        EscapeHtml(scenario.options[i].name),
        TornadoChart(bars, answer.options[i].present_cost, "present cost, " + money));
  }
  body +=
      "<h2>Inputs</h2>\n<table>\n<tr><th>Input</th><th class=\"n\">Value</th><th>Source</th>"
      "<th>Date</th></tr>\n";
  for (std::size_t i = 0; i < scenario.inputs.size(); ++i) {
    const UncertainInput& input = scenario.inputs[i];
    body += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}{}</td><td>{}</td><td>{}</td></tr>\n",
        EscapeHtml(InputName(scenario, i)), EscapeHtml(InputText(scenario, i, input.value)),
        input.uncertain() ? " ±" : "", EscapeHtml(input.source), EscapeHtml(input.date));
  }
  body += "</table>\n";
  return HtmlPage(scenario.name, body);
}

}  // namespace tare::econ
