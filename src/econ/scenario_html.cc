// A scenario's answer as a self-contained page.
#include "base/html.h"
#include "econ/html.h"
#include "econ/matrix_report.h"
#include "econ/quantity.h"
#include "econ/scenario_words.h"
#include "econ/svg_chart.h"

namespace tare::econ {

namespace {

// Cost of a token by load of the same hardware.
std::string LoadTable(const Scenario& scenario, const ScenarioAnswer& answer) {
  constexpr double kShares[] = {0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8};
  std::string rows;
  for (std::size_t i = 0; i < answer.curves.size(); ++i) {
    if (!(answer.options[i].first_year.mean_instances > 0)) continue;
    rows += fmt::format("<tr><td>{}</td>", EscapeHtml(scenario.options[i].name));
    for (double share : kShares) {
      const std::optional<double> cost = CostAtBusyShare(answer.curves[i], share);
      rows += cost ? fmt::format("<td class=\"n\">{:.3g}</td>", *cost)
                   : std::string("<td class=\"n\">–</td>");
    }
    rows += "</tr>\n";
  }
  if (rows.empty()) return rows;
  std::string table = "<table>\n<tr><th>per million tokens at a load of about</th>";
  for (double share : kShares) table += fmt::format("<th class=\"n\">{:.0f} %</th>", share * 100);
  return table + "</tr>\n" + rows +
         "</table>\n<p class=\"note\">Load: busy share of the running instances. The same hardware "
         "costs many times more a token when it idles.</p>\n";
}

}  // namespace

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
  for (std::size_t i = 0; i < answer.curves.size(); ++i) {
    ChartLine line{scenario.options[i].name, {}};
    for (const VolumePoint& p : answer.curves[i]) {
      line.points.emplace_back(p.tokens_per_day, p.per_million);
    }
    lines.push_back(std::move(line));
  }
  std::vector<ChartMark> marks;
  std::string legend;
  for (const PairAnswer& pair : answer.pairs) {
    for (const Crossing& crossing : pair.break_even) {
      marks.push_back({crossing.tokens_per_day, std::to_string(marks.size() + 1)});
      legend += fmt::format("<li>{} or {}: {}</li>", EscapeHtml(scenario.options[pair.a].name),
                            EscapeHtml(scenario.options[pair.b].name),
                            EscapeHtml(CrossingText(scenario, pair, crossing)));
    }
  }
  marks.push_back(
      {scenario.traffic.requests_per_day * scenario.traffic.tokens_per_request(), "demand"});
  body +=
      "<h2>Cost against volume</h2>\n<figure>" +
      LineChart(lines, marks, "tokens a day", money + " per million tokens") +
      "<figcaption>First-year cost per million tokens, everything included. Dashed: the demand, "
      "and the volumes at which two options change places.</figcaption></figure>\n";
  if (!legend.empty()) body += "<ol>" + legend + "</ol>\n";
  body += LoadTable(scenario, answer);

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
        "<h2>What moves {}</h2>\n<figure>{}<figcaption>Present cost with one input at its 10th "
        "(green) and 90th (orange) percentile, the others at their estimates."
        "</figcaption></figure>\n",
        EscapeHtml(scenario.options[i].name),
        TornadoChart(bars, answer.options[i].present_cost, "present cost, " + money));
  }
  if (const std::string matrix = MatrixHtml(MatrixOf(scenario, answer)); !matrix.empty()) {
    body += fmt::format(
        "<h2>{} by its two widest inputs</h2>\n<p class=\"note\">Present cost, {}; "
        "each input from its 10th to its 90th percentile.</p>\n{}",
        EscapeHtml(scenario.options.front().name), money, matrix);
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
