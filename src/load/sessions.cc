#include "load/sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "load/figures.h"
#include "load/report_page.h"

namespace tare::load {
namespace {

using nlohmann::json;

struct Turn {
  std::uint64_t requests = 0, failed = 0;
  double input = 0, cached = 0, reusable = 0;  // tokens, of answers with a usage
  std::uint64_t told = 0;
  std::vector<double> ttft;
};

// One line of either table: the figures of one turn as text.
struct Line {
  std::string turn, requests, failed, input, cached, reusable, ttft;
};

double Number(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : std::nan("");
}

std::vector<Line> Lines(const json& workload) {
  std::vector<Line> lines;
  if (!workload.is_object() || !workload.contains("sessions")) return lines;
  const json& sessions = workload["sessions"];
  if (!sessions.is_object() || !sessions.contains("turns") || !sessions["turns"].is_array()) {
    return lines;
  }
  const auto percent = [](double share) {
    return std::isfinite(share) ? fmt::format("{:.1f} %", share * 100) : std::string("—");
  };
  const auto whole = [](double value) {
    return std::isfinite(value) ? fmt::format("{:.0f}", value) : std::string("—");
  };
  for (const json& turn : sessions["turns"]) {
    if (!turn.is_object()) continue;
    lines.push_back({whole(Number(turn, "turn")), whole(Number(turn, "requests")),
                     whole(Number(turn, "failed")), whole(Number(turn, "input_tokens")),
                     percent(Number(turn, "cached_share")), percent(Number(turn, "reusable_share")),
                     Ms(Number(turn, "ttft_p50_s"))});
  }
  return lines;
}

std::string Counts(const json& workload) {
  const json& sessions = workload["sessions"];
  return fmt::format("{:.0f} sessions begun, {:.0f} complete, {:.0f} ended by a failed turn",
                     Number(sessions, "begun"), Number(sessions, "complete"),
                     Number(sessions, "failed"));
}

}  // namespace

json SessionFacts(const Recorder& recorder, const std::vector<ThreadMeasurement>& threads) {
  std::vector<Turn> turns;
  for (const RequestRecord& record : recorder.requests()) {
    if (record.phase != Phase::kMeasured) continue;
    if (turns.size() <= record.turn) turns.resize(record.turn + 1);
    Turn& turn = turns[record.turn];
    ++turn.requests;
    if (!record.ok()) {
      ++turn.failed;
      continue;
    }
    const double ttft = LatenciesOf(record).ttft;
    if (std::isfinite(ttft)) turn.ttft.push_back(ttft);
    if (!record.told_usage || record.told_input == 0) continue;
    ++turn.told;
    turn.input += record.told_input;
    turn.cached += record.told_cached;
    turn.reusable += std::min(record.seen_before, record.told_input);
  }
  std::uint64_t begun = 0, complete = 0, failed = 0;
  for (const ThreadMeasurement& thread : threads) {
    begun += thread.sessions_begun;
    complete += thread.sessions_complete;
    failed += thread.sessions_failed;
  }
  json list = json::array();
  for (std::size_t i = 0; i < turns.size(); ++i) {
    Turn& turn = turns[i];
    const bool told = turn.input > 0;
    const store::LatencyFigure ttft = FigureOf(std::move(turn.ttft));
    list.push_back(
        {{"turn", i + 1},
         {"requests", turn.requests},
         {"failed", turn.failed},
         {"input_tokens", told ? json(turn.input / static_cast<double>(turn.told)) : json(nullptr)},
         {"cached_share", told ? json(turn.cached / turn.input) : json(nullptr)},
         {"reusable_share", told ? json(turn.reusable / turn.input) : json(nullptr)},
         {"ttft_p50_s", ttft.n > 0 && std::isfinite(ttft.p50) ? json(ttft.p50) : json(nullptr)}});
  }
  return {{"begun", begun}, {"complete", complete}, {"failed", failed}, {"turns", std::move(list)}};
}

std::string SessionTable(const json& workload) {
  const std::vector<Line> lines = Lines(workload);
  if (lines.empty()) return {};
  std::string out =
      fmt::format("\n  {}\n  {:>5}{:>10}{:>8}{:>14}{:>10}{:>12}{:>14}\n", Counts(workload), "turn",
                  "requests", "failed", "input tokens", "cached", "seen before", "TTFT p50 (ms)");
  for (const Line& l : lines) {
    // The dash is three bytes wide and one column: fmt counts columns.
    out += fmt::format("  {:>5}{:>10}{:>8}{:>14}{:>10}{:>12}{:>14}\n", l.turn, l.requests, l.failed,
                       l.input, l.cached, l.reusable, l.ttft);
  }
  return out;
}

std::string SessionHtml(const json& workload) {
  const std::vector<Line> lines = Lines(workload);
  if (lines.empty()) return {};
  std::string out =
      "<h2>Turns</h2><table><tr><th>turn</th><th>requests</th><th>failed</th><th>input tokens</th>"
      "<th>cached</th><th>seen in the turn before</th><th>TTFT p50 (ms)</th></tr>";
  for (const Line& l : lines) {
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        l.turn, l.requests, l.failed, l.input, l.cached, l.reusable, l.ttft);
  }
  return out + "</table><p class=\"sub\">" + Counts(workload) + ".</p>";
}

}  // namespace tare::load
