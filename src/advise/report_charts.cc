#include "advise/report_charts.h"

#include <algorithm>
#include <cmath>

#include "advise/chart.h"
#include "advise/report_content.h"

namespace tare::advise {
namespace {

// Points drawn of a distribution or timeline: more than a screen's width tells nothing more.
constexpr std::size_t kMaxPoints = 400;
// Latencies beyond this many times the limit are told in words, at the upper edge of the chart.
constexpr double kNearLimit = 2.5;

void AddCost(const Report& report, const Words& words, std::vector<ReportChart>& charts) {
  BarChart chart;
  chart.title = words.Say(report.plan.traffic ? "row.cost_traffic" : "chart.cost");
  chart.x.label = words.Say("chart.cost.x");
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const CandidateResult& result = report.candidates[i];
    if (!result.cost) continue;
    Bar bar;
    bar.name = result.candidate.name;
    bar.color = static_cast<int>(i);
    const Standing& standing = report.ranking.standings[i];
    // What candidates are ranked by, where they are ranked.
    bar.value = std::isfinite(standing.usd_per_million_tokens)
                    ? standing.usd_per_million_tokens
                    : result.cost->usd_per_million_tokens;
    bar.label = FormatUsd(bar.value);
    if (standing.interval_known() && !report.plan.traffic) {
      bar.low = standing.low;
      bar.high = standing.high;
    }
    chart.bars.push_back(std::move(bar));
  }
  if (chart.bars.empty()) return;
  charts.push_back({chart.title, RenderBarChart(chart), words.Say("chart.cost.caption")});
}

// The latency the plan limits first; else the whole answer.
LatencyLimit LimitToShow(const Report& report) {
  if (!report.plan.levels.latency.empty()) return report.plan.levels.latency.front();
  return {Metric::kE2e, Percentile::kP50, 0};
}

// Series meet at light loads, where their labels would hide each other: of labels that would
// overlap the upper one stays.
void ThinLabels(LineChart& chart, double y_max) {
  std::vector<ChartPoint*> points;
  double x_max = 0;
  for (ChartSeries& series : chart.series) {
    for (ChartPoint& point : series.points) {
      points.push_back(&point);
      x_max = std::max(x_max, point.x);
    }
  }
  std::ranges::sort(points, std::greater(), &ChartPoint::y);
  std::vector<const ChartPoint*> kept;
  for (ChartPoint* point : points) {
    const bool hidden = std::ranges::any_of(kept, [&](const ChartPoint* other) {
      return std::abs(point->x - other->x) < 0.14 * x_max &&
             std::min(other->y, y_max) - point->y < 0.07 * y_max;
    });
    if (hidden) {
      point->label.clear();
    } else {
      kept.push_back(point);
    }
  }
}

void AddLoad(const Report& report, const Words& words, std::vector<ReportChart>& charts) {
  const LatencyLimit limit = LimitToShow(report);
  const auto metric = static_cast<std::size_t>(limit.metric);
  const auto percentile = static_cast<std::size_t>(limit.percentile);
  LineChart chart;
  chart.title = words.Say("chart.load");
  chart.x.label = words.Say("chart.load.x");
  chart.y.label = NameOf(limit, words) + " (s)";
  chart.marks = true;
  if (limit.limit_s > 0) {
    chart.y_limit = limit.limit_s;
    chart.limit_label = words.Say("limit", {{"limit", FormatSeconds(limit.limit_s)}});
  }
  double highest = 0, highest_near = 0;
  const double near = kNearLimit * limit.limit_s;
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const CandidateResult& result = report.candidates[i];
    ChartSeries series{result.candidate.name, static_cast<int>(i), {}};
    for (const LevelResult& level : result.levels) {
      const double latency = level.percentile_s[metric][percentile];
      if (std::isnan(latency)) continue;
      highest = std::max(highest, latency);
      if (latency <= near) highest_near = std::max(highest_near, latency);
      std::string label = LevelText(report.plan.load, level.level, words);
      if (near > 0 && latency > near) label += ": " + FormatSeconds(latency);
      series.points.push_back({level.rates.output_tokens_per_s, latency, std::move(label)});
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) return;
  // An overloaded candidate's queue grows without end; drawn to scale it would flatten the rest.
  if (near > 0 && highest > near) chart.y.max = std::max(highest_near, limit.limit_s) * 1.25;
  ThinLabels(chart, chart.y.max.value_or(highest));
  charts.push_back({chart.title, RenderLineChart(chart), words.Say("chart.load.caption")});
}

void AddDistribution(const Report& report, const Words& words, std::vector<ReportChart>& charts) {
  LineChart chart;
  chart.title = words.Say("chart.cdf");
  chart.x.label = words.Say("chart.cdf.x");
  chart.y.label = words.Say("chart.cdf.y");
  chart.y.percent = true;
  chart.y.max = 1;
  for (const LatencyLimit& limit : report.plan.levels.latency) {
    if (limit.metric != Metric::kE2e || chart.x_limit) continue;
    chart.x_limit = limit.limit_s;
    chart.limit_label = words.Say("limit", {{"limit", FormatSeconds(limit.limit_s)}});
  }
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const CandidateResult& result = report.candidates[i];
    if (result.Shown() == nullptr) continue;
    const std::vector<double>& sorted =
        result.Shown()->sorted_s[static_cast<std::size_t>(Metric::kE2e)];
    if (sorted.empty()) continue;
    ChartSeries series{result.candidate.name, static_cast<int>(i), {}};
    const std::size_t step = sorted.size() / kMaxPoints + 1;
    const auto share = [&](std::size_t k) {
      return static_cast<double>(k) / static_cast<double>(sorted.size());
    };
    series.points.push_back({sorted.front(), 0, ""});
    for (std::size_t k = 0; k < sorted.size(); k += step) {
      series.points.push_back({sorted[k], share(k), ""});
      series.points.push_back({sorted[k], share(k + 1), ""});
    }
    series.points.push_back({sorted.back(), 1, ""});
    chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) return;
  charts.push_back({chart.title, RenderLineChart(chart), words.Say("chart.cdf.caption")});
}

void AddTimeline(const Report& report, const Words& words, std::vector<ReportChart>& charts) {
  LineChart chart;
  chart.title = words.Say("chart.time");
  chart.x.label = words.Say("chart.time.x");
  chart.y.label = words.Say("chart.time.y");
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const CandidateResult& result = report.candidates[i];
    if (result.Shown() == nullptr) continue;
    std::vector<double> seconds;
    for (const std::vector<double>& round : result.Shown()->tokens_by_second) {
      seconds.insert(seconds.end(), round.begin(), round.end());
    }
    if (seconds.size() < 2) continue;
    const std::size_t step = seconds.size() / kMaxPoints + 1;
    ChartSeries series{result.candidate.name, static_cast<int>(i), {}};
    for (std::size_t k = 0; k + step <= seconds.size(); k += step) {
      double sum = 0;
      for (std::size_t j = k; j < k + step; ++j) sum += seconds[j];
      series.points.push_back({static_cast<double>(k) + static_cast<double>(step) / 2,
                               sum / static_cast<double>(step), ""});
    }
    chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) return;
  charts.push_back({chart.title, RenderLineChart(chart), words.Say("chart.time.caption")});
}

}  // namespace

std::vector<ReportChart> ChartsOf(const Report& report, const Words& words) {
  std::vector<ReportChart> charts;
  AddCost(report, words, charts);
  AddLoad(report, words, charts);
  AddDistribution(report, words, charts);
  AddTimeline(report, words, charts);
  return charts;
}

}  // namespace tare::advise
