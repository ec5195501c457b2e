#include "load/report_text.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"
#include "load/compare.h"
#include "load/report_page.h"
#include "load/sessions.h"

namespace tare::load {
namespace {

using nlohmann::json;
using store::LatencyFigure;

std::string LatencyRow(const std::string& name, const LatencyFigure& f) {
  if (f.n == 0) return {};
  return fmt::format("  {:<18}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", name, Ms(f.mean),
                     Ms(f.p50), Ms(f.p90), Ms(f.p95), Ms(f.p99), Ms(f.max), f.n);
}

std::string Text(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return {};
  return object[key].get<std::string>();
}

std::string LoadText(const store::RunRecord& record) {
  const json& workload = record.workload;
  if (!workload.is_object() || !workload.contains("arrival")) return {};
  const json& arrival = workload["arrival"];
  const std::string kind = Text(arrival, "kind");
  const auto number = [](const json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_number()
               ? object[key].get<double>()
               : 0.0;
  };
  std::string text =
      kind == "closed" ? fmt::format("{:g} users", number(arrival, "users"))
      : kind == "trace"
          ? fmt::format("trace {} × {:g}", Text(arrival, "trace"), number(arrival, "speedup"))
          : fmt::format("{:g} req/s {}", number(arrival, "rate_per_s"), kind);
  if (workload.contains("mean_input_tokens")) {
    text +=
        fmt::format(", {:.0f} tokens in, {:.0f} out on average",
                    number(workload, "mean_input_tokens"), number(workload, "mean_output_tokens"));
  }
  if (workload.contains("seed")) text += fmt::format(", seed {}", workload["seed"].dump());
  return text;
}

// "  level      ttft_p99: 97.1 % of requests (95 % interval 94.0 … 98.6), 99 % needed: breaks".
std::string LevelLines(const json& workload) {
  std::string out;
  if (!workload.is_object() || !workload.contains("level_shares")) return out;
  for (const json& level : workload["level_shares"]) {
    if (!level.is_object()) continue;
    const json interval = level.value("interval95", json::array());
    const auto percent = [](const json& v) { return v.is_number() ? v.get<double>() * 100 : 0; };
    out +=
        fmt::format("  level      {}: {:.1f} % of requests ({:.1f} … {:.1f}), {:g} % needed: {}\n",
                    level.value("level", std::string()), percent(level.value("share", json())),
                    interval.size() == 2 ? percent(interval[0]) : 0,
                    interval.size() == 2 ? percent(interval[1]) : 0,
                    percent(level.value("needed", json())), level.value("verdict", std::string()));
  }
  return out;
}

}  // namespace

std::string RunReport(const store::RunRecord& record) {
  const store::RunSummary& s = record.summary;
  std::string out;
  if (!record.valid) {
    out += "INVALID RUN: do not use these figures\n";
    for (const store::ValidityCheck& check : record.checks) {
      if (!check.ok) out += fmt::format("  ✘ {}: {}\n", check.name, check.detail);
    }
    out += "\n";
  }
  if (record.tag != "measured") out += fmt::format("({})\n", record.tag);
  out += fmt::format("{}  {}  {}\n", Text(record.target, "url"), Text(record.target, "model"),
                     record.name);
  if (const std::string load = LoadText(record); !load.empty()) out += load + "\n";
  out += fmt::format("\n  requests   {} ok, {} failed of {} in {:.1f} s\n", s.ok, s.failed, s.total,
                     s.duration_s);
  for (const auto& [kind, count] : s.errors_by_kind) {
    out += fmt::format("             {} × {}\n", count, kind);
  }
  out += fmt::format("  rate       {:.2f} requests/s, {:.1f} output tokens/s\n", s.requests_per_s,
                     s.output_tokens_per_s);
  const bool has_levels = record.workload.is_object() && record.workload.contains("levels") &&
                          !record.workload["levels"].empty();
  if (has_levels) {
    out += fmt::format("  goodput    {:.2f} requests/s meet every level\n", s.goodput_per_s);
  }
  out += LevelLines(record.workload);
  if (s.peak_rss_bytes > 0) {
    out += fmt::format("  memory     {} resident at peak{}\n", FormatBytes(s.peak_rss_bytes),
                       s.peak_pss_bytes > 0
                           ? fmt::format(", {} proportional", FormatBytes(s.peak_pss_bytes))
                           : "");
  }
  out += SessionTable(record.workload);
  out += fmt::format("\n  {:<18}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "ms", "mean", "p50",
                     "p90", "p95", "p99", "max", "n");
  out += LatencyRow("TTFT", s.ttft.sent);
  out += LatencyRow("TTFT, intended", s.ttft.intended);
  out += LatencyRow("ITL", s.itl.sent);
  out += LatencyRow("TPOT", s.tpot.sent);
  out += LatencyRow("E2E", s.e2e.sent);
  out += LatencyRow("E2E, intended", s.e2e.intended);
  out += "  — : too few samples for that percentile\n";
  if (s.itl.sent.n > 0) {
    out += fmt::format("  longest gap {} ms, {} stalls (gaps over 10 × the median)\n",
                       Ms(s.longest_gap_s), s.stalls);
  }
  if (record.valid) {
    out += "\nvalid:";
    for (const store::ValidityCheck& check : record.checks) out += " " + check.name + " ✔";
    out += "\n";
  }
  if (!record.id.empty()) out += fmt::format("run {}  (tare runs show {})\n", record.id, record.id);
  return out;
}

std::string ListTable(std::span<const store::RunListing> runs) {
  if (runs.empty()) return "no runs yet; `tare load URL` makes one\n";
  std::string out = fmt::format("{:<27}{:<20}{:<9}{:>8}{:>8}{:>10}{:>11}  {}\n", "run", "name",
                                "verdict", "ok", "failed", "req/s", "tok/s", "model");
  for (const store::RunListing& run : runs) {
    out += fmt::format("{:<27}{:<20}{:<9}{:>8}{:>8}{:>10.2f}{:>11.1f}  {}{}\n", run.id,
                       run.name.substr(0, 19), run.valid ? "valid" : "INVALID", run.ok, run.failed,
                       run.requests_per_s, run.output_tokens_per_s, run.model,
                       run.tag == "measured" ? "" : " (" + run.tag + ")");
  }
  return out;
}

std::string ComparisonTable(std::span<const store::RunRecord> records) {
  std::string out;
  const auto label = [](const store::RunRecord& r) {
    return r.name.empty() ? r.id : fmt::format("{} ({})", r.name, r.id);
  };
  for (std::size_t i = 1; i < records.size(); ++i) {
    out += fmt::format("A: {}{}\nB: {}{}\n", label(records[0]),
                       records[0].valid ? "" : "  INVALID RUN", label(records[i]),
                       records[i].valid ? "" : "  INVALID RUN");
    out += fmt::format("  {:<22}{:>12}{:>12}{:>9}  {:<19}{}\n", "", "A", "B", "B/A",
                       "95 % interval", "B is");
    for (const Difference& d : Compare(records[0], records[i])) {
      if (d.verdict == "too few samples") {
        out += fmt::format("  {:<22}{:>12}{:>12}{:>9}  {:<19}{}\n", d.metric, "—", "—", "—", "",
                           d.verdict);
        continue;
      }
      out += fmt::format("  {:<22}{:>12.5g}{:>12.5g}{:>9.3f}  {:<19}{}\n", d.metric, d.a, d.b,
                         d.ratio, fmt::format("{:.3f} … {:.3f}", d.low, d.high), d.verdict);
    }
    out += "\n";
  }
  return out;
}

json ComparisonJson(std::span<const store::RunRecord> records) {
  json document = {{"schema", "tare.comparison/1"}, {"comparisons", json::array()}};
  for (std::size_t i = 1; i < records.size(); ++i) {
    json metrics = json::array();
    for (const Difference& d : Compare(records[0], records[i])) {
      json one = {{"metric", d.metric}, {"verdict", d.verdict}};
      if (d.verdict != "too few samples") {
        one.update({{"a", d.a}, {"b", d.b}, {"ratio", d.ratio}, {"interval95", {d.low, d.high}}});
      }
      metrics.push_back(std::move(one));
    }
    document["comparisons"].push_back({{"a", records[0].id},
                                       {"b", records[i].id},
                                       {"valid", records[0].valid && records[i].valid},
                                       {"metrics", std::move(metrics)}});
  }
  return document;
}

std::string RequestsCsv(const store::RunRecord& record) {
  if (!record.series.is_object() || !record.series.contains("requests") ||
      !record.series["requests"].is_object()) {
    return {};
  }
  const json& requests = record.series["requests"];
  std::string out;
  std::size_t rows = 0;
  for (const auto& [name, column] : requests.items()) {
    out += (out.empty() ? "" : ",") + name;
    if (column.is_array()) rows = std::max(rows, column.size());
  }
  out += "\n";
  for (std::size_t i = 0; i < rows; ++i) {
    bool first = true;
    for (const auto& [name, column] : requests.items()) {
      if (!first) out += ",";
      first = false;
      if (column.is_array() && i < column.size() && !column[i].is_null()) out += column[i].dump();
    }
    out += "\n";
  }
  return out;
}

}  // namespace tare::load
