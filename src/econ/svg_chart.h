// Charts as inline SVG for self-contained pages: lines over a logarithmic axis, a tornado, overlaid
// histograms. Pure functions from data to markup; colours come from the page's style.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tare::econ {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending, all above zero
};
struct ChartMark {
  double x = 0;
  std::string text;
};
// Both axes logarithmic; marks are dashed verticals with a short label at the top.
std::string LineChart(const std::vector<ChartLine>& lines, const std::vector<ChartMark>& marks,
                      const std::string& x_title, const std::string& y_title);

struct ChartBar {
  std::string name;
  double low = 0, high = 0;  // outcome at the input's low and high value
  std::string low_text, high_text;
};
std::string TornadoChart(const std::vector<ChartBar>& bars, double centre,
                         const std::string& x_title);

struct ChartHistogram {
  std::string name;
  double low = 0, high = 0;
  std::vector<std::uint32_t> bins;
};
std::string HistogramChart(const std::vector<ChartHistogram>& histograms,
                           const std::string& x_title);

}  // namespace tare::econ
