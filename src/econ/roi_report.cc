// The return on investment for a terminal and as a page.
#include <fmt/format.h>

#include "base/html.h"
#include "econ/case_common.h"
#include "econ/html.h"
#include "econ/matrix_report.h"
#include "econ/quantity.h"
#include "econ/roi_case.h"
#include "econ/svg_chart.h"

namespace tare::econ {
namespace {

using nlohmann::json;

std::string Percent(double share) { return fmt::format("{:.3g} %", share * 100); }

double At(const json& object, const char* key) { return object[key].get<double>(); }

std::string Name(const json& object, const char* key = "name") {
  return object[key].get<std::string>();
}

std::string PercentOrDash(const json& value) {
  return value.is_number() ? Percent(value.get<double>()) : std::string("-");
}

std::string YearsOrNever(const json& value, std::size_t quarters) {
  return value.is_number() ? fmt::format("{:.2f} years", value.get<double>())
                           : fmt::format("not in {:.3g} years", static_cast<double>(quarters) / 4);
}

MatrixTable Matrix(const json& answer) {
  MatrixTable table;
  if (!answer.contains("sensitivity")) return table;
  const json& matrix = answer["sensitivity"];
  table.rows_name = "growth a quarter";
  table.columns_name = "share of agents' work replaced";
  for (const json& value : matrix["growth"]) table.rows.push_back(Percent(value.get<double>()));
  for (const json& value : matrix["replacement"]) {
    table.columns.push_back(Percent(value.get<double>()));
  }
  table.cells = matrix["npv"].get<std::vector<std::vector<double>>>();
  table.higher_is_better = true;
  return table;
}

std::string Terms(const json& a) {
  return fmt::format("outlay {}, {} a year, flows at the {}", FormatNumber(At(a, "outlay")),
                     Percent(At(a, "rate")), Name(a, "timing"));
}

// Of one option's inputs; shares, retentions and rates all read as shares.
std::vector<ChartBar> Bars(const json& option) {
  constexpr std::size_t kMost = 10;
  std::vector<ChartBar> bars;
  for (const json& bar : option["tornado"]) {
    if (bars.size() == kMost) break;
    const auto text = [&](const char* key) { return fmt::format("{:.4g}", At(bar, key)); };
    bars.push_back({Name(bar, "input"), At(bar, "npv_at_p10"), At(bar, "npv_at_p90"),
                    text("input_p10"), text("input_p90")});
  }
  return bars;
}

std::string QuartersText(const json& options) {
  std::string text = fmt::format("\n{:<10}", "quarter");
  for (const json& option : options) text += fmt::format("{:>14}", Name(option));
  text += "   revenue + saving + benefit\n";
  for (std::size_t q = 0; q < options.front()["quarters"].size(); ++q) {
    text += fmt::format("{:<10}", q);
    for (const json& option : options) {
      const json& quarter = option["quarters"][q];
      text += fmt::format("{:>14.4g}",
                          At(quarter, "revenue") + At(quarter, "saving") + At(quarter, "benefit"));
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string RoiText(const json& a) {
  const json& options = a["options"];
  std::string text = Terms(a) + "\n\n" +
                     fmt::format("{:<14}{:>10}{:>10}{:>16}{:>12}\n", "option", "NPV", "IRR",
                                 "paid back", "published");
  std::string notes;
  for (const json& option : options) {
    const bool published = option.contains("published");
    text += fmt::format("{:<14}{:>10.4g}{:>10}{:>16}{:>12}\n", Name(option), At(option, "npv"),
                        PercentOrDash(option["irr"]),
                        YearsOrNever(option["payback_years"], option["quarters"].size()),
                        published ? FormatNumber(At(option["published"], "published")) : "");
    if (published && option["published"].contains("note")) {
      notes += fmt::format("{}: {} {}\n", Name(option),
                           FormatNumber(At(option["published"], "published")),
                           Name(option["published"], "note"));
    }
  }
  text += notes.empty() ? "" : "\n" + notes;
  if (!options.empty()) text += QuartersText(options);
  if (const std::string matrix = MatrixText(Matrix(a)); !matrix.empty()) {
    text += fmt::format("\nNPV by growth and replacement, effectiveness {:.3g}\n{}",
                        At(a["sensitivity"], "effectiveness"), matrix);
  }
  if (!a.contains("monte_carlo")) return text;
  text += fmt::format("\n{} draws, seed {}; net present value\n",
                      a["monte_carlo"]["draws"].get<std::uint64_t>(),
                      a["monte_carlo"]["seed"].get<std::uint64_t>());
  for (const json& option : options) {
    const json& d = option["npv_distribution"];
    text +=
        fmt::format("{:<14} P10 {:.4g}  P50 {:.4g}  P90 {:.4g}  above zero in {}\n", Name(option),
                    At(d, "p10"), At(d, "p50"), At(d, "p90"), Percent(At(d, "p_above_zero")));
  }
  for (const json& pair : a["pairs"]) {
    text += fmt::format("{} beats {} in {}\n", Name(pair, "a"), Name(pair, "b"),
                        Percent(At(pair, "p_a_better")));
  }
  for (const json& option : options) {
    text += fmt::format("\nwhat moves {} most (input at its P10 and P90)\n", Name(option));
    for (const ChartBar& bar : Bars(option)) {
      text += fmt::format("  {:<32}{:>10} .. {:<10} NPV {:.4g} .. {:.4g}\n", bar.name, bar.low_text,
                          bar.high_text, bar.low, bar.high);
    }
  }
  return text;
}

std::string RoiHtml(const json& a) {
  const json& options = a["options"];
  std::string body =
      fmt::format("<h1>{}</h1>\n<p class=\"note\">{}; {}.</p>\n", EscapeHtml(Name(a)),
                  EscapeHtml(AmountsIn(Name(a, "currency"))), EscapeHtml(Terms(a)));
  if (a.contains("assumes")) {
    body += fmt::format("<p class=\"note\">Assumed: {}.</p>\n", EscapeHtml(Name(a, "assumes")));
  }
  body +=
      "<table>\n<tr><th>Option</th><th class=\"n\">NPV</th><th class=\"n\">IRR</th><th "
      "class=\"n\">Paid back</th><th class=\"n\">Published</th><th>Does the published value "
      "follow?</th></tr>\n";
  for (const json& option : options) {
    const json published = option.value("published", json::object());
    body += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{:.4g}</td><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
        EscapeHtml(Name(option)), At(option, "npv"), PercentOrDash(option["irr"]),
        YearsOrNever(option["payback_years"], option["quarters"].size()),
        published.empty() ? "" : FormatNumber(At(published, "published")),
        published.empty()            ? ""
        : published.contains("note") ? EscapeHtml(Name(published, "note"))
                                     : "yes");
  }
  body += "</table>\n";
  if (const std::string matrix = MatrixHtml(Matrix(a)); !matrix.empty()) {
    body += fmt::format(
        "<h2>Growth and replacement</h2>\n<p class=\"note\">Net present value at "
        "effectiveness {:.3g}.</p>\n{}",
        At(a["sensitivity"], "effectiveness"), matrix);
  }
  if (a.contains("monte_carlo")) {
    std::vector<ChartHistogram> histograms;
    std::string rows;
    for (const json& option : options) {
      const json& d = option["npv_distribution"];
      const json& h = d["histogram"];
      histograms.push_back({Name(option), At(h, "low"), At(h, "high"),
                            h["counts"].get<std::vector<std::uint32_t>>()});
      rows += fmt::format(
          "<tr><td>{}</td><td class=\"n\">{:.4g}</td><td class=\"n\">{:.4g}</td><td "
          "class=\"n\">{:.4g}</td><td class=\"n\">{}</td></tr>\n",
          EscapeHtml(Name(option)), At(d, "p10"), At(d, "p50"), At(d, "p90"),
          Percent(At(d, "p_above_zero")));
    }
    body += fmt::format(
        "<h2>How sure</h2>\n<figure>{}<figcaption>{} draws, seed {}.</figcaption></figure>\n<table>"
        "\n<tr><th>Option</th><th class=\"n\">P10</th><th class=\"n\">P50</th><th "
        "class=\"n\">P90</th><th class=\"n\">Above zero in</th></tr>\n{}</table>\n",
        HistogramChart(histograms, "net present value"),
        FormatNumber(At(a["monte_carlo"], "draws")), a["monte_carlo"]["seed"].get<std::uint64_t>(),
        rows);
    for (const json& option : options) {
      body += fmt::format(
          "<h2>What moves {}</h2>\n<figure>{}<figcaption>Net present value with one input at its "
          "10th (green) and 90th (orange) percentile, the others at their estimates."
          "</figcaption></figure>\n",
          EscapeHtml(Name(option)),
          TornadoChart(Bars(option), At(option, "npv"), "net present value"));
    }
  }
  return HtmlPage(Name(a), body);
}

}  // namespace tare::econ
