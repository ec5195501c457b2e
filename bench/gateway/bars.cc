#include "gateway/bars.h"

#include <fmt/format.h>

#include <algorithm>

namespace tare::bench {

namespace {

using nlohmann::json;

constexpr double kMostAddedMs = 1, kMostAddedLargeMs = 5, kLeastRate = 2500;
constexpr double kMostOfNginx = 2, kLeastChunks = 20'000, kMostRssMib = 100;
constexpr int kLeastStreams = 5000;

// The part's row of that way; null: it was not run.
const json* Row(const json& part, const char* name) {
  const json& rows = part.is_object() ? part.at("ways") : part;
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const json& row) { return row["name"] == name; });
  return found == rows.end() ? nullptr : &*found;
}

double Of(const json& row, const char* key) { return row.at(key).get<double>(); }

void JudgeLatency(const json& part, const std::string& what, double most_ms, double least_rate,
                  std::vector<Bar>& bars) {
  const json* tare = Row(part, "tare");
  const json* nginx = Row(part, "nginx");
  if (tare == nullptr) return;
  const double rate = part.at("rate").get<double>(), cpu = Of(*tare, "cpu_us_per_request");
  const double added = Of(*tare, "added_p99_ms");
  bars.push_back({what + ": added P99", fmt::format("< {:g} ms", most_ms),
                  nginx != nullptr
                      ? fmt::format("{:.2f} ms (nginx {:.2f})", added, Of(*nginx, "added_p99_ms"))
                      : fmt::format("{:.2f} ms", added),
                  added < most_ms && Of(*tare, "failed") == 0});
  if (least_rate > 0) {
    bars.push_back({what + ": requests/s a core", fmt::format(">= {:g}", least_rate),
                    fmt::format("{:.0f} sent, {:.2f} cores", rate, rate * cpu * 1e-6),
                    rate >= least_rate && rate * cpu * 1e-6 <= 1});
  }
  if (nginx == nullptr || Of(*nginx, "cpu_us_per_request") <= 0) return;
  const double times = cpu / Of(*nginx, "cpu_us_per_request");
  bars.push_back({what + ": CPU a request", fmt::format("<= {:g} x nginx", kMostOfNginx),
                  fmt::format("{:.0f} us, {:.2f} x", cpu, times), times <= kMostOfNginx});
}

}  // namespace

std::vector<Bar> JudgeBars(const json& document) {
  std::vector<Bar> bars;
  if (document.contains("small")) {
    JudgeLatency(document["small"], "whole answers", kMostAddedMs, kLeastRate, bars);
  }
  if (document.contains("stream")) {
    JudgeLatency(document["stream"], "streams of 4", kMostAddedMs, kLeastRate, bars);
  }
  if (document.contains("large")) {
    JudgeLatency(document["large"], "220 KB prompts", kMostAddedLargeMs, 0, bars);
  }
  if (document.contains("chunks")) {
    if (const json* tare = Row(document["chunks"], "tare")) {
      const double rate = Of(*tare, "chunks_per_cpu_s");
      bars.push_back({"chunks/s a core", fmt::format(">= {:g}", kLeastChunks),
                      fmt::format("{:.0f}", rate),
                      rate >= kLeastChunks && Of(*tare, "failed") == 0});
    }
  }
  if (document.contains("streams")) {
    if (const json* tare = Row(document["streams"], "tare")) {
      const double ok = Of(*tare, "ok"), rss = Of(*tare, "peak_rss_mib");
      bars.push_back({"streams at once, whole", fmt::format(">= {}", kLeastStreams),
                      fmt::format("{:.0f}, {:.0f} failed", ok, Of(*tare, "failed")),
                      ok >= kLeastStreams && Of(*tare, "failed") == 0});
      bars.push_back({"RSS meanwhile", fmt::format("< {:g} MiB", kMostRssMib),
                      fmt::format("{:.0f} MiB", rss), rss < kMostRssMib});
    }
  }
  return bars;
}

std::string BarTable(const std::vector<Bar>& bars, const json& document) {
  std::string text = fmt::format("{:36} {:>14}  {:28}\n", "bar", "asked", "seen");
  for (const Bar& bar : bars) {
    text += fmt::format("{:36} {:>14}  {:28} {}\n", bar.what, bar.asked, bar.seen,
                        bar.met ? "met" : "NOT MET");
  }
  double sent = 0, failed = 0;
  for (const char* part : {"small", "stream", "large", "chunks", "streams"}) {
    if (!document.contains(part)) continue;
    const json* tare = Row(document[part], "tare");
    if (tare == nullptr) continue;
    failed += Of(*tare, "failed");
    sent += Of(*tare, "failed") + Of(*tare, "ok");
  }
  const json& machine = document.at("machine");
  text += fmt::format(
      "{:.0f} of {:.0f} requests through tare failed ({:.3f} %); other programs kept {:.2f} of {} "
      "cores busy, {:.2f} at worst in a part\n",
      failed, sent, sent > 0 ? 100 * failed / sent : 0, machine.at("others_cores").get<double>(),
      machine.at("cores").get<int>(), machine.at("others_cores_worst").get<double>());
  return text;
}

}  // namespace tare::bench
