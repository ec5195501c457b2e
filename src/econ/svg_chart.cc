#include "econ/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/html.h"
#include "econ/html.h"
#include "econ/quantity.h"

namespace tare::econ {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 360;
constexpr double kLeft = 80;
constexpr double kRight = 20;
constexpr double kTop = 30;
constexpr double kBottom = 50;

const char* Colour(std::size_t series) {
  static constexpr const char* kColours[] = {"var(--a)", "var(--b)", "var(--c)", "var(--d)"};
  return kColours[series % 4];
}

std::string Open(double height) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">\n", kWidth, height);
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     EscapeHtml(text));
}

std::string Rule(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, style);
}

constexpr const char* kGrid = "stroke=\"var(--line)\"";
constexpr const char* kDashed = "stroke=\"var(--soft)\" stroke-dasharray=\"4 4\"";

// A linear or logarithmic axis onto pixels.
struct Scale {
  double low, high, from, to;
  bool logarithmic = false;
  double At(double value) const {
    const double a = logarithmic ? std::log10(low) : low;
    const double b = logarithmic ? std::log10(high) : high;
    const double v = logarithmic ? std::log10(std::max(value, low * 1e-3)) : value;
    return b > a ? from + (v - a) / (b - a) * (to - from) : 0.5 * (from + to);
  }
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (logarithmic) {
      const double decades = std::log10(high / low);
      for (double power = std::floor(std::log10(low)); power <= std::log10(high); ++power) {
        for (double step : {1.0, 2.0, 5.0}) {
          if (step != 1.0 && decades > 2.5) continue;
          const double tick = step * std::pow(10, power);
          if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push_back(tick);
        }
      }
      return ticks;
    }
    const double rough = (high - low) / 6;
    if (!(rough > 0) || !std::isfinite(rough)) return {low};
    const double unit = std::pow(10, std::floor(std::log10(rough)));
    const double step = rough / unit > 5 ? 10 * unit : rough / unit > 2 ? 5 * unit : 2 * unit;
    // Whole multiples of the step: adding steps up would end beside zero, and zero is never "-0".
    for (double n = std::ceil(low / step); n * step <= high && ticks.size() < 50; ++n) {
      ticks.push_back(n * step + 0.0);
    }
    return ticks;
  }
};

std::string XAxis(const Scale& x, double top, double bottom, const std::string& title) {
  std::string svg;
  for (double tick : x.Ticks()) {
    svg += Rule(x.At(tick), top, x.At(tick), bottom, kGrid);
    svg += Text(x.At(tick), bottom + 16, "middle", FormatSi(tick));
  }
  return svg + Text(0.5 * (x.from + x.to), bottom + 38, "middle", title);
}

std::string Legend(const std::vector<std::string>& names) {
  std::string svg;
  double x = kLeft;
  for (std::size_t i = 0; i < names.size(); ++i) {
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"8\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\"/>\n", x,
        Colour(i));
    svg += Text(x + 18, 18, "start", names[i]);
    x += 40 + 7.2 * static_cast<double>(names[i].size());
  }
  return svg;
}

// Dashed verticals with a label each; labels that would touch take the next row down.
std::string Marks(std::vector<ChartMark> marks, const Scale& x, double bottom) {
  constexpr double kLetter = 7.2, kPadding = 10, kRow = 17;
  std::stable_sort(marks.begin(), marks.end(),
                   [](const ChartMark& a, const ChartMark& b) { return a.x < b.x; });
  std::string svg;
  std::vector<double> row_ends;
  for (const ChartMark& mark : marks) {
    const double at = x.At(mark.x);
    const double half = 0.5 * (kLetter * static_cast<double>(mark.text.size()) + kPadding);
    std::size_t row = 0;
    while (row < row_ends.size() && row_ends[row] > at - half) ++row;
    if (row == row_ends.size()) row_ends.push_back(0);
    row_ends[row] = at + half;
    const double y = kTop + 4 + kRow * static_cast<double>(row);
    svg += Rule(at, kTop, at, bottom, kDashed);
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"15\" rx=\"7\" "
        "fill=\"var(--panel)\" stroke=\"var(--soft)\"/>\n",
        at - half, y, 2 * half);
    svg += Text(at, y + 11.5, "middle", mark.text);
  }
  return svg;
}

}  // namespace

std::string LineChart(const std::vector<ChartLine>& lines, const std::vector<ChartMark>& marks,
                      const std::string& x_title, const std::string& y_title) {
  double x_low = 1e300, x_high = 0, y_low = 1e300, y_high = 0;
  for (const ChartLine& line : lines) {
    for (auto [x, y] : line.points) {
      if (!(x > 0) || !(y > 0) || !std::isfinite(y)) continue;
      x_low = std::min(x_low, x);
      x_high = std::max(x_high, x);
      y_low = std::min(y_low, y);
      y_high = std::max(y_high, y);
    }
  }
  if (!(x_high > 0)) return "";
  const double bottom = kHeight - kBottom;
  const Scale x{x_low, x_high, kLeft, kWidth - kRight, true};
  const Scale y{y_low * 0.9, y_high * 1.1, bottom, kTop, true};
  std::string svg = Open(kHeight) + XAxis(x, kTop, bottom, x_title);
  for (double tick : y.Ticks()) {
    svg += Rule(kLeft, y.At(tick), kWidth - kRight, y.At(tick), kGrid);
    svg += Text(kLeft - 8, y.At(tick) + 4, "end", FormatSi(tick));
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string path;
    for (auto [px, py] : lines[i].points) {
      if (!(px > 0) || !(py > 0) || !std::isfinite(py)) continue;
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : " L", x.At(px), y.At(py));
    }
    svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.2\"/>\n", path,
                       Colour(i));
    names.push_back(lines[i].name);
  }
  svg += Marks(marks, x, bottom);
  return svg + Legend(names) + Text(kLeft - 60, kTop - 12, "start", names.empty() ? y_title : "") +
         fmt::format(
             "<text transform=\"translate(16 {:.0f}) rotate(-90)\" text-anchor=\"middle\">"
             "{}</text>\n</svg>\n",
             0.5 * (kTop + bottom), EscapeHtml(y_title));
}

std::string TornadoChart(const std::vector<ChartBar>& bars, double centre,
                         const std::string& x_title) {
  if (bars.empty()) return "";
  constexpr double kRow = 30;
  constexpr double kNames = 220;
  double low = centre, high = centre;
  for (const ChartBar& bar : bars) {
    low = std::min({low, bar.low, bar.high});
    high = std::max({high, bar.low, bar.high});
  }
  const double margin = std::max((high - low) * 0.38, 1e-12);
  const double bottom = kTop + kRow * static_cast<double>(bars.size());
  const Scale x{low - margin, high + margin, kNames, kWidth - kRight, false};
  std::string svg = Open(bottom + kBottom) + XAxis(x, kTop, bottom, x_title);
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const ChartBar& bar = bars[i];
    const double y = kTop + kRow * static_cast<double>(i) + 5;
    const double from = std::min(x.At(bar.low), x.At(bar.high));
    const double to = std::max(x.At(bar.low), x.At(bar.high));
    const double middle = std::clamp(x.At(centre), from, to);
    const bool rises = bar.high >= bar.low;
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"20\" "
        "fill=\"{}\"/>\n",
        from, y, middle - from, rises ? "var(--c)" : "var(--b)");
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"20\" "
        "fill=\"{}\"/>\n",
        middle, y, to - middle, rises ? "var(--b)" : "var(--c)");
    svg += Text(kNames - 10, y + 15, "end", bar.name);
    svg += Text(from - 4, y + 15, "end", rises ? bar.low_text : bar.high_text);
    svg += Text(to + 4, y + 15, "start", rises ? bar.high_text : bar.low_text);
  }
  return svg + Rule(x.At(centre), kTop, x.At(centre), bottom, "stroke=\"var(--ink)\"") + "</svg>\n";
}

std::string HistogramChart(const std::vector<ChartHistogram>& histograms,
                           const std::string& x_title) {
  double low = 1e300, high = -1e300, densest = 0;
  for (const ChartHistogram& h : histograms) {
    if (h.bins.empty()) continue;
    low = std::min(low, h.low);
    high = std::max(high, h.high);
    const double width = (h.high - h.low) / static_cast<double>(h.bins.size());
    for (std::uint32_t bin : h.bins) densest = std::max(densest, bin / width);
  }
  if (!(high > low)) return "";
  constexpr double kChartHeight = 280;
  const double bottom = kChartHeight - kBottom;
  const Scale x{low, high, kLeft, kWidth - kRight, false};
  std::string svg = Open(kChartHeight) + XAxis(x, kTop, bottom, x_title);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < histograms.size(); ++i) {
    const ChartHistogram& h = histograms[i];
    names.push_back(h.name);
    if (h.bins.empty()) continue;
    const double width = (h.high - h.low) / static_cast<double>(h.bins.size());
    std::string path = fmt::format("M{:.1f},{:.1f}", x.At(h.low), bottom);
    for (std::size_t bin = 0; bin < h.bins.size(); ++bin) {
      const double y = bottom - h.bins[bin] / width / densest * (bottom - kTop);
      path += fmt::format(" L{:.1f},{:.1f} L{:.1f},{:.1f}",
                          x.At(h.low + width * static_cast<double>(bin)), y,
                          x.At(h.low + width * static_cast<double>(bin + 1)), y);
    }
    path += fmt::format(" L{:.1f},{:.1f} Z", x.At(h.high), bottom);
    svg += fmt::format(
        "<path d=\"{}\" fill=\"{}\" fill-opacity=\".28\" stroke=\"{}\" stroke-width=\"1.2\"/>\n",
        path, Colour(i), Colour(i));
  }
  return svg + Legend(names) + "</svg>\n";
}

}  // namespace tare::econ
