#include "load/report_html.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/html.h"
#include "base/text.h"
#include "load/figures.h"
#include "load/recorder.h"
#include "load/report_page.h"
#include "load/sessions.h"
#include "load/svg_chart.h"

namespace tare::load {
namespace {

using nlohmann::json;

std::vector<double> Numbers(const json& object, const char* key) {
  std::vector<double> values;
  if (!object.is_object() || !object.contains(key) || !object[key].is_array()) return values;
  for (const json& v : object[key]) {
    values.push_back(v.is_number() ? v.get<double>() : std::nan(""));
  }
  return values;
}

const json& Part(const json& object, const char* key) {
  static const json kNothing = json::object();
  return object.is_object() && object.contains(key) ? object[key] : kNothing;
}

std::string Interval(const store::LatencyFigure::Interval& i) {
  return std::isfinite(i.low) ? fmt::format("{} … {}", Ms(i.low), Ms(i.high)) : "—";
}

std::string FigureRow(const char* name, const store::LatencyFigure& f) {
  if (f.n == 0) return {};
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
      "<td>{}</td></tr>",
      name, Ms(f.mean), Ms(f.p50), Interval(f.p50_interval), Ms(f.p90), Ms(f.p95), Ms(f.p99),
      Ms(f.max), f.n);
}

// Requests by time and latency: about a hundred columns, bands as in the recordings.
std::string RequestHeat(const json& requests, double length, const char* column,
                        const std::string& title) {
  const std::vector<double> at = Numbers(requests, "intended_s");
  const std::vector<double> latency = Numbers(requests, column);
  const double width = std::max(0.1, std::ceil(length / 100 * 10) / 10);
  std::map<std::pair<int, int>, double> counts;
  for (std::size_t i = 0; i < at.size() && i < latency.size(); ++i) {
    if (!std::isfinite(at[i]) || !std::isfinite(latency[i])) continue;
    ++counts[{static_cast<int>(at[i] / width), HeatBand(FromSeconds(latency[i]))}];
  }
  if (counts.empty()) return {};
  std::vector<HeatCell> cells;
  for (const auto& [key, count] : counts) {
    cells.push_back({key.first * width, (key.first + 1) * width, HeatBandFloor(key.second),
                     HeatBandFloor(key.second + 1), count});
  }
  return HeatMap(cells, {0, length, false, "seconds after the start", false},
                 LogSeconds(latency, ""), title, "requests");
}

std::string GapHeat(const json& heat, double length) {
  const std::vector<double> second = Numbers(heat, "second");
  const std::vector<double> band = Numbers(heat, "band");
  const std::vector<double> count = Numbers(heat, "count");
  std::vector<HeatCell> cells;
  std::vector<double> seen;
  for (std::size_t i = 0; i < second.size() && i < band.size() && i < count.size(); ++i) {
    const double floor = HeatBandFloor(static_cast<int>(band[i]));
    const double roof = HeatBandFloor(static_cast<int>(band[i]) + 1);
    seen.push_back(floor);
    seen.push_back(roof);
    cells.push_back({second[i], second[i] + 1, floor, roof, count[i]});
  }
  if (cells.empty()) return {};
  return HeatMap(cells, {0, length, false, "seconds after the start", false}, LogSeconds(seen, ""),
                 "Gaps between chunks (ITL) over time", "gaps");
}

ChartLine Cdf(const json& requests, const char* column, std::string label, int color) {
  std::vector<double> values = Numbers(requests, column);
  const std::vector<double> measured = Numbers(requests, "measured");
  const std::vector<double> ok = Numbers(requests, "ok");
  std::vector<double> kept;
  for (std::size_t i = 0; i < values.size() && i < measured.size() && i < ok.size(); ++i) {
    if (measured[i] == 1 && ok[i] == 1 && std::isfinite(values[i])) kept.push_back(values[i]);
  }
  std::sort(kept.begin(), kept.end());
  ChartLine line{std::move(label), {}, {}, color, true};
  const std::size_t stride = std::max<std::size_t>(1, kept.size() / 400);
  for (std::size_t i = 0; i < kept.size(); i += stride) {
    line.x.push_back(kept[i]);
    line.y.push_back(100.0 * static_cast<double>(i + 1) / static_cast<double>(kept.size()));
  }
  if (!kept.empty()) {
    line.x.push_back(kept.back());
    line.y.push_back(100);
  }
  return line;
}

std::string Distributions(const json& requests) {
  const std::vector<ChartLine> lines = {Cdf(requests, "ttft_s", "TTFT, sent", 0),
                                        Cdf(requests, "ttft_intended_s", "TTFT, intended", 1),
                                        Cdf(requests, "e2e_s", "E2E, sent", 2)};
  std::vector<double> all;
  for (const ChartLine& line : lines) all.insert(all.end(), line.x.begin(), line.x.end());
  if (all.empty()) return {};
  return LineChart(lines, LogSeconds(all, "latency"), {0, 100, false, "", false},
                   "Share of requests answered within (%)");
}

double Highest(const std::vector<double>& values) {
  double high = 0;
  for (const double v : values) {
    if (std::isfinite(v)) high = std::max(high, v);
  }
  return high;
}

std::string Timelines(const json& series, double length) {
  const json& per_second = Part(series, "per_second");
  const auto line = [&](const char* key, const char* label, int color) {
    ChartLine l{label, {}, Numbers(per_second, key), color, true};
    for (std::size_t i = 0; i < l.y.size(); ++i) l.x.push_back(static_cast<double>(i));
    return l;
  };
  const Axis time{0, length, false, "seconds after the start", false};
  std::vector<ChartLine> rates = {line("started", "started", 2), line("ok", "ok", 0),
                                  line("failed", "failed", 3)};
  double high = 1;
  for (const ChartLine& l : rates) high = std::max(high, Highest(l.y));
  std::string out =
      LineChart(rates, time, {0, high * 1.1, false, "", false}, "Requests per second");
  const ChartLine tokens = line("tokens", "tokens", 0);
  out += LineChart({tokens}, time, {0, std::max(1.0, Highest(tokens.y)) * 1.1, false, "", false},
                   "Output tokens per second");
  const json& memory = Part(series, "memory");
  ChartLine rss{"RSS", Numbers(memory, "t_s"), Numbers(memory, "rss_bytes"), 1, true};
  if (!rss.x.empty()) {
    for (double& v : rss.y) v /= 1048576.0;
    out +=
        LineChart({rss}, time, {0, Highest(rss.y) * 1.1, false, "", false}, "Server memory (MiB)");
  }
  if (series.is_object() && series.contains("server")) {
    for (const auto& [name, points] : series["server"].items()) {
      const ChartLine server{"", Numbers(points, "t_s"), Numbers(points, "value"), 1, true};
      if (server.x.size() < 2) continue;
      out +=
          LineChart({server}, time, {0, std::max(1e-9, Highest(server.y)) * 1.1, false, "", false},
                    "Server: " + name);
    }
  }
  return out;
}

}  // namespace

std::string HtmlReport(const store::RunRecord& record) {
  const store::RunSummary& s = record.summary;
  const auto text = [&](const json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_string()
               ? EscapeHtml(object[key].get<std::string>())
               : std::string();
  };
  const std::string title = record.name.empty() ? record.id : record.name;
  std::string out = PageHead("Load test " + title);
  out += fmt::format("<h1>Load test {}</h1><p class=\"sub\">{} · {} · {} · run {}{}</p>",
                     EscapeHtml(title), text(record.target, "url"), text(record.target, "model"),
                     EscapeHtml(record.started_at), EscapeHtml(record.id),
                     record.tag == "measured" ? "" : " · " + EscapeHtml(record.tag));
  if (record.valid) {
    out += "<div class=\"verdict\"><b>Valid.</b> Every check below holds.</div>";
  } else {
    out += "<div class=\"verdict bad\"><b>Invalid: do not use these figures.</b>";
    for (const store::ValidityCheck& check : record.checks) {
      if (!check.ok) {
        out += fmt::format("<p>{}: {}</p>", EscapeHtml(check.name), EscapeHtml(check.detail));
      }
    }
    out += "</div>";
  }
  const auto number = [&](const std::string& value, const char* label) {
    out += fmt::format("<div><b>{}</b>{}</div>", value, label);
  };
  out += "<div class=\"numbers\">";
  number(fmt::format("{:.2f}", s.requests_per_s), "requests/s");
  number(fmt::format("{:.1f}", s.output_tokens_per_s), "output tokens/s");
  if (!Part(record.workload, "levels").empty()) {
    number(fmt::format("{:.2f}", s.goodput_per_s), "good requests/s");
  }
  number(fmt::format("{} / {}", s.ok, s.total), "answered");
  if (s.peak_rss_bytes > 0) number(FormatBytes(s.peak_rss_bytes), "peak memory (RSS)");
  out +=
      "</div><h2>Latency (ms)</h2><table><tr><th></th><th>mean</th><th>p50</th><th>95 % "
      "interval</th><th>p90</th><th>p95</th><th>p99</th><th>max</th><th>n</th></tr>";
  out += FigureRow("TTFT, from sent", s.ttft.sent);
  out += FigureRow("TTFT, from intended", s.ttft.intended);
  out += FigureRow("ITL", s.itl.sent);
  out += FigureRow("TPOT", s.tpot.sent);
  out += FigureRow("E2E, from sent", s.e2e.sent);
  out += FigureRow("E2E, from intended", s.e2e.intended);
  out += "</table><p class=\"sub\">— : too few samples for that percentile.</p>";
  if (s.itl.sent.n > 0) {
    out += fmt::format("<p>Longest gap {} ms; {} stalls (gaps over 10 × the median).</p>",
                       Ms(s.longest_gap_s), s.stalls);
  }
  if (!s.errors_by_kind.empty()) {
    out += "<h2>Errors</h2><table><tr><th>kind</th><th>requests</th></tr>";
    for (const auto& [kind, count] : s.errors_by_kind) {
      out += fmt::format("<tr><td>{}</td><td>{}</td></tr>", EscapeHtml(kind), count);
    }
    out += "</table>";
  }

  out += SessionHtml(record.workload);
  const json& requests = Part(record.series, "requests");
  double length = 1;
  for (const double end : Numbers(requests, "end_s")) {
    if (std::isfinite(end)) length = std::max(length, end);
  }
  length = std::ceil(length);
  out += "<h2>Over time</h2>";
  out += RequestHeat(requests, length, "ttft_intended_s", "TTFT from intended, over time");
  out += RequestHeat(requests, length, "e2e_intended_s", "E2E from intended, over time");
  out += GapHeat(Part(record.series, "gap_heat"), length);
  out += Timelines(record.series, length);
  out += "<h2>Distributions</h2>" + Distributions(requests);

  out +=
      "<h2>Checks</h2><table><tr><th>check</th><th class=\"l\">verdict</th><th "
      "class=\"l\">found</th></tr>";
  for (const store::ValidityCheck& check : record.checks) {
    out += fmt::format("<tr><td>{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td></tr>",
                       EscapeHtml(check.name), check.ok ? "✔" : "✘", EscapeHtml(check.detail));
  }
  out += "</table><h2>What was asked</h2><pre>" +
         EscapeHtml(record.workload.dump(2, ' ', false, json::error_handler_t::replace)) + "</pre>";
  return out + PageEnd();
}

}  // namespace tare::load
