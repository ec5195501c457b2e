// The report's charts as SVG text: no script, no font file, readable on paper and in grey (series
// differ in colour, dash and mark, and carry their name). Colours are CSS variables of the page
// (web/report/report.css), so the same picture serves light, dark and print.
//
// Pure functions; every text is escaped here.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tare::advise {

struct Axis {
  std::string label;     // "Requests answered within (s)"
  bool percent = false;  // values are shares, written as per cent
  std::optional<double> max;
};

struct ChartPoint {
  double x = 0, y = 0;
  std::string label;  // beside the point; may be empty
};

struct ChartSeries {
  std::string name;
  int color = 0;  // index into the palette; the same candidate has the same in every chart
  std::vector<ChartPoint> points;
};

struct LineChart {
  std::string title;  // for screen readers; the page sets its own heading
  Axis x, y;
  std::vector<ChartSeries> series;
  bool marks = false;  // a mark at every point
  // A limit: a line across at this x or y with its text.
  std::optional<double> x_limit, y_limit;
  std::string limit_label;
};
std::string RenderLineChart(const LineChart& chart);

struct Bar {
  std::string name;
  int color = 0;
  double value = 0;
  std::optional<double> low, high;  // interval, drawn as a whisker
  std::string label;                // the value as text
};
struct BarChart {
  std::string title;
  Axis x;
  std::vector<Bar> bars;
};
std::string RenderBarChart(const BarChart& chart);

// At most `count` round values that cover [0, max], ending at or above max. Exposed for tests.
std::vector<double> Ticks(double max, int count);

}  // namespace tare::advise
