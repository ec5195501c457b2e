// Small SVG charts: enough for the load report, nothing more. Pure functions that return markup.
//
// Colours: one blue scale for amounts, blue, orange and grey for series (told apart without colour
// by their labels at the line's end); everything else is ink. Text scales with the page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tare::load {

struct Axis {
  double low = 0, high = 1;
  bool log = false;
  std::string label;
  bool seconds = false;  // ticks are written as durations: "20 ms"
};

struct ChartLine {
  std::string label;
  std::vector<double> x, y;        // NaN breaks the line
  int color = 0;                   // 0 blue, 1 orange, 2 grey, 3 red
  bool steps = false;              // holds its value until the next x
  bool marks = false;              // a dot at every point
  bool joined = true;              // a line through the points
  std::vector<double> low, high;   // of bars at the points; empty: none
  std::vector<std::string> notes;  // beside the points; empty: none
};

struct ChartSpan {  // a shaded range of x
  double x0 = 0, x1 = 0;
};

std::string LineChart(const std::vector<ChartLine>& lines, const Axis& x, const Axis& y,
                      std::string_view title, const std::vector<ChartSpan>& spans = {});

struct HeatCell {
  double x0 = 0, x1 = 0, y0 = 0, y1 = 0;
  double count = 0;
};
// Darker is more, on a logarithmic scale; a legend says what darkest stands for.
std::string HeatMap(const std::vector<HeatCell>& cells, const Axis& x, const Axis& y,
                    std::string_view title, std::string_view unit);

}  // namespace tare::load
