// A rate search as a table, as JSON and as a page.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/html.h"
#include "base/units.h"
#include "load/rate_search_run.h"
#include "load/report_page.h"
#include "load/svg_chart.h"

namespace tare::load {
namespace {

using nlohmann::json;

json Number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }
json Maybe(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

std::string Sentence(const SearchResult& result) {
  const SearchAnswer& a = result.answer;
  std::string text;
  if (a.holds && a.breaks) {
    text = fmt::format("The levels hold at {:.4g} requests/s and break at {:.4g}", *a.holds,
                       *a.breaks);
  } else if (a.holds) {
    text = fmt::format("The levels hold at {:.4g} requests/s; no rate was shown to break them",
                       *a.holds);
    if (a.untested) text += fmt::format(" ({:.4g} could not be tested)", *a.untested);
  } else if (a.breaks) {
    text = fmt::format("The levels break at {:.4g} requests/s already", *a.breaks);
  } else {
    text = "No rate was shown to hold";
  }
  return text + ": " + a.why + ".";
}

std::string LevelsText(const json& levels) {
  std::string text;
  for (const auto& [name, value] : levels.items()) {
    const std::string key = name.size() > 2 ? name.substr(0, name.size() - 2) : name;  // "…_s"
    text += (text.empty() ? "" : ", ") + key + " ≤ " +
            FormatDuration(FromSeconds(value.is_number() ? value.get<double>() : 0));
  }
  return text;
}

std::string ShareText(const LevelShare& share) {
  return fmt::format("{} {:.1f} % ({:.1f} … {:.1f}, needs {:g})", share.name, share.share() * 100,
                     share.low() * 100, share.high() * 100, share.needed * 100);
}

std::vector<const SearchProbe*> ByRate(const SearchResult& result) {
  std::vector<const SearchProbe*> order;
  for (const SearchProbe& probe : result.probes) order.push_back(&probe);
  std::stable_sort(order.begin(), order.end(),
                   [](const SearchProbe* a, const SearchProbe* b) { return a->rate < b->rate; });
  return order;
}

// Evidence of all probes at one rate together.
std::map<double, std::vector<LevelShare>> Pooled(const SearchResult& result) {
  std::map<double, std::vector<LevelShare>> pooled;
  for (const SearchProbe& probe : result.probes) {
    if (probe.outcome == ProbeOutcome::kInvalid) continue;
    std::vector<LevelShare>& shares = pooled[probe.rate];
    if (shares.empty()) {
      shares = probe.shares;
      continue;
    }
    for (std::size_t i = 0; i < shares.size() && i < probe.shares.size(); ++i) {
      shares[i].Pool(probe.shares[i]);
    }
  }
  return pooled;
}

Axis RateAxis(const SearchResult& result) {
  double low = INFINITY, high = 0;
  for (const SearchProbe& probe : result.probes) {
    low = std::min(low, probe.rate);
    high = std::max(high, probe.rate);
  }
  if (!(high > 0)) return {0.1, 1, true, "requests/s asked", false};
  return {low / 1.15, std::max(high * 1.15, low * 1.5), true, "requests/s asked", false};
}

std::vector<ChartSpan> BorderSpan(const SearchResult& result) {
  const SearchAnswer& a = result.answer;
  if (a.holds && a.breaks) return {{*a.holds, *a.breaks}};
  return {};
}

std::string ShareChart(const SearchResult& result) {
  std::vector<ChartLine> lines;
  std::vector<double> needed;
  for (const auto& [rate, shares] : Pooled(result)) {
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (lines.size() <= i) {
        ChartLine line;
        line.label = shares[i].name;
        line.color = static_cast<int>(i);
        line.marks = true;
        lines.push_back(std::move(line));
        needed.push_back(shares[i].needed * 100);
      }
      lines[i].x.push_back(rate);
      lines[i].y.push_back(shares[i].share() * 100);
      lines[i].low.push_back(shares[i].low() * 100);
      lines[i].high.push_back(shares[i].high() * 100);
    }
  }
  if (lines.empty()) return {};
  const Axis x = RateAxis(result);
  const std::size_t levels = lines.size();
  for (std::size_t i = 0; i < levels; ++i) {
    lines.push_back({fmt::format("needs {:g} %", needed[i]),
                     {x.low, x.high},
                     {needed[i], needed[i]},
                     static_cast<int>(i)});
  }
  return LineChart(lines, x, {0, 100, false, "", false},
                   "Share of requests that meet each level (%), with 95 % intervals",
                   BorderSpan(result));
}

std::string LatencyChart(const SearchResult& result) {
  std::vector<ChartLine> lines(3);
  lines[0].label = "TTFT p50";
  lines[1].label = "TTFT p99";
  lines[2].label = "TPOT p50";
  std::vector<double> all;
  for (const SearchProbe* probe : ByRate(result)) {
    if (probe->outcome == ProbeOutcome::kInvalid) continue;
    const double values[] = {probe->ttft_p50, probe->ttft_p99, probe->tpot_p50};
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (!std::isfinite(values[i])) continue;
      lines[i].x.push_back(probe->rate);
      lines[i].y.push_back(values[i]);
      all.push_back(values[i]);
    }
  }
  if (all.empty()) return {};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    lines[i].color = static_cast<int>(i);
    lines[i].marks = true;
  }
  return LineChart(lines, RateAxis(result), LogSeconds(all, ""),
                   "Latency from the intended time, each probe", BorderSpan(result));
}

}  // namespace

std::string SearchTable(const SearchResult& result) {
  std::string out = Sentence(result) + "\n";
  out += fmt::format("levels: {}\n\n", LevelsText(result.levels));
  out += fmt::format("{:>9}{:>5}  {:<9}{:>10}{:>11}{:>11}{:>11}  {}\n", "asked/s", "try", "verdict",
                     "done/s", "TTFT p50", "TTFT p99", "TPOT p50", "share that meets each level");
  for (const SearchProbe* probe : ByRate(result)) {
    out += fmt::format("{:>9.4g}{:>5}  {:<9}{:>10.2f}{:>11}{:>11}{:>11}  ", probe->rate,
                       probe->attempt, ToString(probe->outcome), probe->requests_per_s,
                       Ms(probe->ttft_p50), Ms(probe->ttft_p99), Ms(probe->tpot_p50));
    if (probe->outcome == ProbeOutcome::kInvalid) {
      out += probe->invalid;
    } else {
      for (std::size_t i = 0; i < probe->shares.size(); ++i) {
        out += (i > 0 ? "; " : "") + ShareText(probe->shares[i]);
      }
    }
    out += "\n";
  }
  out += fmt::format(
      "latencies in ms from the intended time; — : too few samples; verdicts of each probe alone\n"
      "{} probes in {:.0f} s\n",
      result.probes.size(), result.seconds);
  return out;
}

json SearchJson(const SearchResult& result) {
  json probes = json::array();
  for (const SearchProbe& probe : result.probes) {
    json shares = json::array();
    for (const LevelShare& share : probe.shares) shares.push_back(ToJson(share));
    json one = {{"rate_per_s", probe.rate},
                {"attempt", probe.attempt},
                {"run", probe.run},
                {"verdict", ToString(probe.outcome)},
                {"levels", std::move(shares)},
                {"requests_per_s", probe.requests_per_s},
                {"ttft_p50_s", Number(probe.ttft_p50)},
                {"ttft_p99_s", Number(probe.ttft_p99)},
                {"tpot_p50_s", Number(probe.tpot_p50)},
                {"seconds", probe.seconds}};
    if (!probe.invalid.empty()) one["invalid"] = probe.invalid;
    probes.push_back(std::move(one));
  }
  return {{"schema", "tare.rate_search/1"},
          {"answer",
           {{"holds_per_s", Maybe(result.answer.holds)},
            {"breaks_per_s", Maybe(result.answer.breaks)},
            {"untested_per_s", Maybe(result.answer.untested)},
            {"why", result.answer.why}}},
          {"levels", result.levels},
          {"asked",
           {{"low_per_s", result.spec.low},
            {"high_per_s", result.spec.high},
            {"resolution", result.spec.resolution},
            {"budget_s", ToSeconds(result.spec.budget)}}},
          {"arrival", result.arrival},
          {"target", result.target},
          {"seconds", result.seconds},
          {"probes", std::move(probes)}};
}

std::string SearchPage(const SearchResult& result) {
  const auto text = [&](const char* key) {
    return result.target.is_object() && result.target.contains(key) &&
                   result.target[key].is_string()
               ? EscapeHtml(result.target[key].get<std::string>())
               : std::string();
  };
  std::string out = PageHead("Rate search");
  out += fmt::format("<h1>Highest rate that holds its levels</h1><p class=\"sub\">{} · {} · {}</p>",
                     text("url"), text("model"), EscapeHtml(LevelsText(result.levels)));
  out += fmt::format("<div class=\"verdict{}\"><b>{}</b></div>", result.answer.holds ? "" : " bad",
                     EscapeHtml(Sentence(result)));
  out += ShareChart(result) + LatencyChart(result);
  out +=
      "<h2>Probes</h2><table><tr><th>asked/s</th><th>try</th><th class=\"l\">verdict</th>"
      "<th>done/s</th><th>TTFT p50 (ms)</th><th>TTFT p99 (ms)</th><th>TPOT p50 (ms)</th>"
      "<th class=\"l\">share that meets each level</th><th class=\"l\">run</th></tr>";
  for (const SearchProbe* probe : ByRate(result)) {
    std::string shares = EscapeHtml(probe->invalid);
    for (const LevelShare& share : probe->shares) {
      shares += (shares.empty() ? "" : "<br>") + EscapeHtml(ShareText(share));
    }
    out += fmt::format(
        "<tr><td>{:.4g}</td><td>{}</td><td class=\"l\">{}</td><td>{:.2f}</td><td>{}</td><td>{}</td>"
        "<td>{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td></tr>",
        probe->rate, probe->attempt, ToString(probe->outcome), probe->requests_per_s,
        Ms(probe->ttft_p50), Ms(probe->ttft_p99), Ms(probe->tpot_p50), shares,
        EscapeHtml(probe->run));
  }
  out += fmt::format(
      "</table><p class=\"sub\">{} probes in {:.0f} s. Latencies from the intended time; — : too "
      "few samples. A rate's evidence is that of all its valid probes together; the shaded range "
      "holds the border.</p>",
      result.probes.size(), result.seconds);
  return out + PageEnd();
}

}  // namespace tare::load
