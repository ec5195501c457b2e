// A sweep as a table, as JSON and as a page with its Pareto plot.
#include <algorithm>
#include <cmath>

#include "base/html.h"
#include "base/text.h"
#include "load/report_page.h"
#include "load/svg_chart.h"
#include "load/sweep.h"

namespace tare::load {
namespace {

using nlohmann::json;

json Number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

std::string Memory(const store::RunSummary& s) {
  return s.peak_rss_bytes > 0 ? FormatBytes(s.peak_rss_bytes) : "—";
}

// "×1.80 better (1.71 … 1.92)"; for a latency, lower is better.
std::string AgainstText(const SweepPoint::Against& a) {
  if (a.verdict == "too few samples") return "too few samples";
  return fmt::format("×{:.2f} {} ({:.2f} … {:.2f})", a.ratio, a.verdict, a.low, a.high);
}

const SweepPoint::Against* Find(const SweepPoint& point, const char* metric) {
  for (const SweepPoint::Against& a : point.against) {
    if (a.metric == metric) return &a;
  }
  return nullptr;
}

std::string Cell(const SweepPoint& point, const char* metric) {
  const SweepPoint::Against* against = Find(point, metric);
  return against == nullptr ? "" : AgainstText(*against);
}

// What fits beside a chart, in columns; the table has the whole label.
std::string ChartLabel(const std::string& label) {
  constexpr std::size_t kMost = 17;
  return label.size() <= kMost ? label : label.substr(0, kMost - 1) + "…";
}

Axis FromZero(const std::vector<double>& values, std::string label) {
  double high = 0;
  for (const double v : values) {
    if (std::isfinite(v)) high = std::max(high, v);
  }
  return {0, high > 0 ? high * 1.12 : 1, false, std::move(label), false};
}

// One line per variant, its points labelled with the number of users.
std::string ParetoChart(const SweepResult& result) {
  std::vector<ChartLine> lines;
  std::vector<double> xs, ys;
  for (std::size_t v = 0; v < result.variants.size(); ++v) {
    ChartLine line;
    line.label = ChartLabel(result.variants[v].label);
    line.color = static_cast<int>(v);
    line.marks = true;
    std::vector<const SweepPoint*> points;
    for (const SweepPoint& point : result.points) {
      if (point.variant == v && point.record.valid) points.push_back(&point);
    }
    std::sort(points.begin(), points.end(),
              [](const SweepPoint* a, const SweepPoint* b) { return a->users < b->users; });
    for (const SweepPoint* point : points) {
      line.x.push_back(point->per_user);
      line.y.push_back(point->record.summary.output_tokens_per_s);
      line.notes.push_back(std::to_string(point->users) + (point->on_front ? " ★" : ""));
      xs.push_back(line.x.back());
      ys.push_back(line.y.back());
    }
    if (!line.x.empty()) lines.push_back(std::move(line));
  }
  if (lines.empty()) return {};
  return LineChart(lines, FromZero(xs, "output tokens/s of one user"), FromZero(ys, ""),
                   "Output tokens/s in total, by number of users (★ on the Pareto front)");
}

std::string LatencyChart(const SweepResult& result, const char* title,
                         double (*figure)(const store::RunSummary&)) {
  std::vector<ChartLine> lines;
  std::vector<double> xs, ys;
  for (std::size_t v = 0; v < result.variants.size(); ++v) {
    ChartLine line;
    line.label = ChartLabel(result.variants[v].label);
    line.color = static_cast<int>(v);
    line.marks = true;
    for (const SweepPoint& point : result.points) {
      const double value = figure(point.record.summary);
      if (point.variant != v || !point.record.valid || !std::isfinite(value)) continue;
      line.x.push_back(point.users);
      line.y.push_back(value);
      xs.push_back(point.users);
      ys.push_back(value);
    }
    if (!line.x.empty()) lines.push_back(std::move(line));
  }
  if (lines.empty()) return {};
  const auto [least, most] = std::minmax_element(xs.begin(), xs.end());
  Axis users{*least / 1.15, std::max(*most * 1.15, *least * 1.5), true, "users", false};
  return LineChart(lines, users, LogSeconds(ys, ""), title);
}

}  // namespace

std::string SweepTable(const SweepResult& result) {
  const bool several = result.variants.size() > 1;
  std::size_t width = 8;
  for (const SweepVariant& v : result.variants) width = std::max(width, v.label.size() + 2);
  const auto label = [&](const std::string& text) {
    return several ? fmt::format("{:<{}}", text, width) : std::string();
  };
  std::string out =
      label("") + fmt::format("{:>7}{:>10}{:>11}{:>11}{:>10}{:>10}{:>10}{:>10}{:>11}  {}\n",
                              "users", "req/s", "tok/s", "tok/s/user", "TTFT p50", "TTFT p99",
                              "TPOT p50", "E2E p99", "memory",
                              several ? "tok/s against the first" : "");
  for (const SweepPoint& point : result.points) {
    const store::RunSummary& s = point.record.summary;
    out += label(result.variants[point.variant].label) +
           fmt::format("{:>7}{:>10.2f}{:>11.1f}{:>11.1f}{:>10}{:>10}{:>10}{:>10}{:>11}  {}{}{}\n",
                       point.users, s.requests_per_s, s.output_tokens_per_s, point.per_user,
                       Ms(s.ttft.sent.p50), Ms(s.ttft.sent.p99), Ms(s.tpot.sent.p50),
                       Ms(s.e2e.sent.p99), Memory(s), point.on_front ? "★ " : "",
                       point.record.valid ? "" : "INVALID ", Cell(point, "output_tokens_per_s"));
  }
  out += "latencies in ms; — : too few samples; ★ : on the Pareto front of tok/s and tok/s/user\n";
  for (const std::string& failure : result.failed) out += "no figures for " + failure + "\n";
  return out;
}

json SweepJson(const SweepResult& result) {
  json document = {{"schema", "tare.sweep/1"},
                   {"valid", result.valid()},
                   {"failed", result.failed},
                   {"points", json::array()},
                   {"runs", json::array()}};
  for (const SweepPoint& point : result.points) {
    const store::RunSummary& s = point.record.summary;
    json against = json::object();
    for (const SweepPoint::Against& a : point.against) {
      against[a.metric] = {{"verdict", a.verdict}};
      if (a.verdict == "too few samples") continue;
      against[a.metric].update(
          {{"ratio", Number(a.ratio)}, {"interval95", {Number(a.low), Number(a.high)}}});
    }
    document["points"].push_back({{"variant", result.variants[point.variant].label},
                                  {"users", point.users},
                                  {"run", point.record.id},
                                  {"valid", point.record.valid},
                                  {"requests_per_s", s.requests_per_s},
                                  {"output_tokens_per_s", s.output_tokens_per_s},
                                  {"output_tokens_per_s_per_user", point.per_user},
                                  {"on_front", point.on_front},
                                  {"against_first", std::move(against)}});
    json run = store::ToJson(point.record);
    run.erase("series");
    document["runs"].push_back(std::move(run));
  }
  return document;
}

std::string SweepPage(const SweepResult& result) {
  const auto text = [](const json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_string()
               ? EscapeHtml(object[key].get<std::string>())
               : std::string();
  };
  const bool several = result.variants.size() > 1;
  std::string out = PageHead("Load sweep");
  out += "<h1>Load sweep</h1><p class=\"sub\">";
  for (std::size_t v = 0; v < result.variants.size(); ++v) {
    const auto first = std::find_if(result.points.begin(), result.points.end(),
                                    [&](const SweepPoint& point) { return point.variant == v; });
    if (first == result.points.end()) continue;
    out += fmt::format("{}{} · {}{}", v > 0 ? "<br>" : "", text(first->record.target, "url"),
                       text(first->record.target, "model"),
                       several ? " · " + EscapeHtml(result.variants[v].label) : "");
  }
  out += "</p>";
  if (result.valid()) {
    out += "<div class=\"verdict\"><b>Valid.</b> Every point's checks hold.</div>";
  } else {
    out += "<div class=\"verdict bad\"><b>Not every point may be used.</b>";
    for (const std::string& failure : result.failed) {
      out += "<p>" + EscapeHtml(failure) + "</p>";
    }
    for (const SweepPoint& point : result.points) {
      for (const store::ValidityCheck& check : point.record.checks) {
        if (check.ok) continue;
        out += fmt::format("<p>{}, {} users: {}: {}</p>",
                           EscapeHtml(result.variants[point.variant].label), point.users,
                           EscapeHtml(check.name), EscapeHtml(check.detail));
      }
    }
    out += "</div>";
  }
  out += ParetoChart(result);
  out += LatencyChart(result, "TTFT p50 by number of users",
                      [](const store::RunSummary& s) { return s.ttft.sent.p50; });
  out += LatencyChart(result, "TPOT p50 by number of users",
                      [](const store::RunSummary& s) { return s.tpot.sent.p50; });
  out += fmt::format(
      "<h2>Points</h2><table><tr>{}<th>users</th><th>req/s</th><th>tok/s</th><th>tok/s per "
      "user</th><th>TTFT p50</th><th>TTFT p99</th><th>TPOT p50</th><th>E2E p99</th>"
      "<th>memory</th></tr>",
      several ? "<th>server</th>" : "");
  for (const SweepPoint& point : result.points) {
    const store::RunSummary& s = point.record.summary;
    out += "<tr>";
    if (several) {
      out += "<td class=\"l\">" + EscapeHtml(result.variants[point.variant].label) + "</td>";
    }
    out += fmt::format(
        "<td>{}{}</td><td>{:.2f}</td><td>{:.1f}{}</td><td>{:.1f}</td><td>{}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td></tr>",
        point.users, point.record.valid ? "" : " ✘", s.requests_per_s, s.output_tokens_per_s,
        point.on_front ? " ★" : "", point.per_user, Ms(s.ttft.sent.p50), Ms(s.ttft.sent.p99),
        Ms(s.tpot.sent.p50), Ms(s.e2e.sent.p99), Memory(s));
  }
  out +=
      "</table><p class=\"sub\">Latencies in ms; — : too few samples; ✘ : invalid, left out of the "
      "plots.</p>";
  if (several) {
    out += fmt::format(
        "<h2>Against {}</h2><table><tr><th>server</th><th>users</th><th class=\"l\">tok/s</th>"
        "<th class=\"l\">TTFT p50</th><th class=\"l\">TPOT p50</th><th class=\"l\">E2E p99</th>"
        "</tr>",
        EscapeHtml(result.variants[0].label));
    for (const SweepPoint& point : result.points) {
      if (point.against.empty()) continue;
      out += fmt::format(
          "<tr><td>{}</td><td>{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td>"
          "<td class=\"l\">{}</td><td class=\"l\">{}</td></tr>",
          EscapeHtml(result.variants[point.variant].label), point.users,
          Cell(point, "output_tokens_per_s"), Cell(point, "ttft_p50_s"), Cell(point, "tpot_p50_s"),
          Cell(point, "e2e_p99_s"));
    }
    out +=
        "</table><p class=\"sub\">Ratios with 95 % intervals by block bootstrap; “cannot tell” "
        "when the interval holds 1.</p>";
  }
  return out + PageEnd();
}

}  // namespace tare::load
