// A scenario's answer for a terminal.
#include <cmath>

#include "econ/matrix_report.h"
#include "econ/quantity.h"
#include "econ/scenario_words.h"

namespace tare::econ {

namespace {

std::string OrDash(double value) {
  return std::isfinite(value) && value != 0 ? fmt::format("{:.4g}", value) : std::string("-");
}

// What a token costs by kind, what money buys, and where the capacity comes from.
std::string UnitCosts(const Scenario& scenario, const ScenarioAnswer& answer) {
  std::string text =
      fmt::format("\n{:<24}{:>12}{:>12}{:>12}{:>18}  {}\n", "a million tokens", "input", "output",
                  "goodput", "req/s per 1000/mo", "capacity of an instance");
  for (std::size_t i = 0; i < answer.options.size(); ++i) {
    const TcoResult& r = answer.options[i];
    const ScenarioOption& option = scenario.options[i];
    std::string capacity = "-";
    if (option.values.capacity_requests_per_second > 0) {
      capacity = fmt::format("{:.4g} requests/s", option.values.capacity_requests_per_second);
      if (option.measured) {
        capacity += fmt::format(", {}{}{}", option.measured->tag,
                                option.measured->interpolated ? ", interpolated" : "",
                                option.measured->at_the_end ? ", may do more" : "");
      }
    }
    text += fmt::format("{:<24}{:>12}{:>12}{:>12}{:>18.4g}  {}\n", option.name,
                        OrDash(r.per_million_input), OrDash(r.per_million_output),
                        OrDash(r.per_million_goodput), r.requests_per_second_per_money_month * 1000,
                        capacity);
  }
  return text;
}

// The same hardware at little and at much load.
std::string LoadText(const Scenario& scenario, const ScenarioAnswer& answer) {
  constexpr double kIdle = 0.02, kBusy = 0.8;
  std::string text;
  for (std::size_t i = 0; i < answer.curves.size(); ++i) {
    const std::optional<double> idle = CostAtBusyShare(answer.curves[i], kIdle);
    const std::optional<double> busy = CostAtBusyShare(answer.curves[i], kBusy);
    if (!idle || !busy) continue;
    text += fmt::format(
        "{}: {:.4g} {} a million tokens at about 2 % load, {:.4g} at 80 %: {:.3g} "
        "times as much\n",
        scenario.options[i].name, *idle, scenario.currency, *busy, *idle / *busy);
  }
  return text.empty() ? text : "\n" + text;
}

}  // namespace

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
  text += UnitCosts(scenario, answer) + LoadText(scenario, answer) + "\n";
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
    if (const std::string matrix = MatrixText(MatrixOf(scenario, answer)); !matrix.empty()) {
      text += fmt::format("\npresent cost of {} by its two widest inputs, {}\n{}",
                          scenario.options.front().name, money, matrix);
    }
  }
  return text;
}

}  // namespace tare::econ
