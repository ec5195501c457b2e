#include "advise/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "advise/escape.h"
#include "advise/words.h"
#include "base/html.h"

namespace tare::advise {
namespace {

// Pixels of the drawing; the page scales it to its width.
constexpr double kWidth = 720, kHeight = 300;
constexpr double kLeft = 64, kRight = 24, kTop = 34, kBottom = 48;
constexpr double kBarHeight = 22, kBarGap = 16;
constexpr int kPalette = 6;
constexpr std::array<const char*, kPalette> kDashes = {"", "7 4", "2 3", "10 3 2 3", "4 2", "1 4"};

std::string TickText(double value, const Axis& axis) {
  if (axis.percent) return fmt::format("{:g} %", std::round(value * 1000) / 10);
  if (std::abs(value) >= 1000) return FormatFigure(value);
  return fmt::format("{:g}", std::round(value * 1e9) / 1e9);
}

struct Scale {
  double max = 1, begin = 0, end = 1;
  double operator()(double value) const {
    return begin + std::clamp(value / max, 0.0, 1.0) * (end - begin);
  }
};

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;
  bool Touches(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

std::string Text(double x, double y, const char* style, std::string_view text) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="{}">{}</text>)", x, y, style,
                     EscapeHtml(text));
}

std::string Line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>)", x1,
                     y1, x2, y2, style);
}

// `above`: room over the drawing's own top.
std::string Open(double height, const std::string& title, double above = 0) {
  return fmt::format(
      R"(<svg viewBox="0 {:.0f} {:.0f} {:.0f}" role="img" aria-label="{}"><title>{}</title>)",
      -above, kWidth, height + above, EscapeHtml(title), EscapeHtml(title));
}

std::string Mark(double x, double y, int color) {
  switch (color % 3) {
    case 0:
      return fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" class="mark c{}"/>)", x, y,
                         color);
    case 1:
      return fmt::format(
          R"(<rect x="{:.1f}" y="{:.1f}" width="7.5" height="7.5" class="mark c{}"/>)", x - 3.75,
          y - 3.75, color);
    default:
      return fmt::format(R"(<path d="M{:.1f} {:.1f}l4.6 8h-9.2z" class="mark c{}"/>)", x, y - 5,
                         color);
  }
}

// About 7.5 px a letter at this size, 14 px for a wide one (three bytes or more in UTF-8).
double TextWidth(std::string_view text) {
  double width = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) != 0x80) width += byte >= 0xE0 ? 14 : 7.5;
  }
  return width;
}

constexpr double kLegendMark = 32, kLegendGap = 28, kLegendRow = 20;

// Where each name of a legend stands: they go on in the next row when the width is used up.
struct LegendPlace {
  double x = 0;
  int row = 0;
};
std::vector<LegendPlace> LegendPlaces(const std::vector<ChartSeries>& series) {
  std::vector<LegendPlace> places;
  double x = kLeft;
  int row = 0;
  for (const ChartSeries& one : series) {
    const double width = kLegendMark + TextWidth(one.name);
    if (x > kLeft && x + width > kWidth) {
      x = kLeft;
      ++row;
    }
    places.push_back({x, row});
    x += width + kLegendGap;
  }
  return places;
}

// Its first row is at the top of the drawing, further ones above that.
std::string Legend(const std::vector<ChartSeries>& series, bool marks) {
  std::string out;
  const std::vector<LegendPlace> places = LegendPlaces(series);
  for (std::size_t i = 0; i < series.size(); ++i) {
    const ChartSeries& one = series[i];
    const double x = places[i].x;
    const double y = 14 + kLegendRow * (places[i].row - places.back().row);
    const int color = one.color % kPalette;
    out += fmt::format(
        R"(<line x1="{0:.1f}" y1="{2:.1f}" x2="{1:.1f}" y2="{2:.1f}" class="line c{3}")", x, x + 26,
        y, color);
    out += fmt::format(R"( stroke-dasharray="{}"/>)", kDashes[static_cast<std::size_t>(color)]);
    if (marks) out += Mark(x + 13, y, color);
    out += Text(x + kLegendMark, y + 4, "name", one.name);
  }
  return out;
}

double MaxOf(const LineChart& chart, bool x) {
  const Axis& axis = x ? chart.x : chart.y;
  if (axis.max) return *axis.max;
  double max = 0;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) max = std::max(max, x ? point.x : point.y);
  }
  // A limit far beyond the data would squeeze it into a corner; then it is only told in words.
  const std::optional<double>& limit = x ? chart.x_limit : chart.y_limit;
  if (limit && *limit <= 2.5 * max) max = std::max(max, *limit);
  return max > 0 ? max : 1;
}

std::string Grid(const LineChart& chart, const Scale& x, const Scale& y,
                 const std::vector<double>& x_ticks, const std::vector<double>& y_ticks) {
  std::string out;
  for (const double tick : y_ticks) {
    out += Line(kLeft, y(tick), kWidth - kRight, y(tick), "grid");
    out += Text(kLeft - 8, y(tick) + 4, "tick end", TickText(tick, chart.y));
  }
  for (const double tick : x_ticks) {
    out += Line(x(tick), kHeight - kBottom, x(tick), kHeight - kBottom + 4, "axis");
    out += Text(x(tick), kHeight - kBottom + 18, "tick middle", TickText(tick, chart.x));
  }
  out += Line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "axis");
  out += Text((kLeft + kWidth - kRight) / 2, kHeight - 8, "label middle", chart.x.label);
  out += fmt::format(
      R"svg(<text transform="translate(14 {:.1f}) rotate(-90)" class="label middle">{}</text>)svg",
      (kTop + kHeight - kBottom) / 2, EscapeHtml(chart.y.label));
  return out;
}

std::string Limits(const LineChart& chart, const Scale& x, const Scale& y) {
  std::string out;
  if (chart.y_limit && *chart.y_limit <= y.max) {
    out += Line(kLeft, y(*chart.y_limit), kWidth - kRight, y(*chart.y_limit), "limit");
    out += Text(kWidth - kRight, y(*chart.y_limit) - 6, "limit-text end", chart.limit_label);
  }
  if (chart.x_limit && *chart.x_limit <= x.max) {
    out += Line(x(*chart.x_limit), kTop, x(*chart.x_limit), kHeight - kBottom, "limit");
    out += Text(x(*chart.x_limit) - 6, kHeight - kBottom - 8, "limit-text end", chart.limit_label);
  }
  return out;
}

}  // namespace

std::vector<double> Ticks(double max, int count) {
  if (!(max > 0) || !std::isfinite(max)) max = 1;
  const double raw = max / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= raw * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks = {0};
  while (ticks.back() < max * (1 - 1e-9)) ticks.push_back(static_cast<double>(ticks.size()) * step);
  return ticks;
}

std::string RenderLineChart(const LineChart& chart) {
  const std::vector<double> x_ticks = Ticks(MaxOf(chart, true), 7);
  const std::vector<double> y_ticks = Ticks(MaxOf(chart, false), 5);
  const Scale x = {x_ticks.back(), kLeft, kWidth - kRight};
  const Scale y = {y_ticks.back(), kHeight - kBottom, kTop};
  const std::vector<LegendPlace> places = LegendPlaces(chart.series);
  std::string out = Open(kHeight, chart.title, places.empty() ? 0 : kLegendRow * places.back().row);
  out += Grid(chart, x, y, x_ticks, y_ticks);
  out += Limits(chart, x, y);
  std::vector<Box> labels;
  for (const ChartSeries& series : chart.series) {
    const int color = series.color % kPalette;
    std::string path;
    for (const ChartPoint& point : series.points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(point.x), y(point.y));
    }
    out += fmt::format(R"(<path d="{}" class="line c{}" stroke-dasharray="{}"/>)", path, color,
                       kDashes[static_cast<std::size_t>(color)]);
    for (const ChartPoint& point : series.points) {
      if (chart.marks) out += Mark(x(point.x), y(point.y), color);
      if (point.label.empty()) continue;
      // Beside the mark, on the side that has room.
      const bool right = x(point.x) < kWidth - kRight - 90;
      const double at = x(point.x) + (right ? 9 : -9), base = y(point.y) + 15;
      const double width = TextWidth(point.label);
      const Box box = {right ? at : at - width, base - 12, right ? at + width : at, base + 3};
      // Candidates under the same load are often close; one label then stands for all.
      const auto covers = [&](const Box& other) { return box.Touches(other); };
      if (std::any_of(labels.begin(), labels.end(), covers)) continue;
      labels.push_back(box);
      out += Text(at, base, right ? "point" : "point end", point.label);
    }
  }
  out += Legend(chart.series, chart.marks);
  return out + "</svg>";
}

std::string RenderBarChart(const BarChart& chart) {
  double max = 0;
  for (const Bar& bar : chart.bars) max = std::max({max, bar.value, bar.high.value_or(0)});
  const std::vector<double> ticks = Ticks(chart.x.max.value_or(max), 5);
  constexpr double kLeastNames = 90, kMostNames = 300, kValues = 90;
  double longest = 0;
  for (const Bar& bar : chart.bars) longest = std::max(longest, TextWidth(bar.name));
  const double names = std::clamp(longest + 20, kLeastNames, kMostNames);
  const Scale x = {ticks.back(), names, kWidth - kValues};
  const double bottom = 8 + static_cast<double>(chart.bars.size()) * (kBarHeight + kBarGap);
  const double height = bottom + kBottom;
  std::string out = Open(height, chart.title);
  for (const double tick : ticks) {
    out += Line(x(tick), 4, x(tick), bottom, "grid");
    out += Text(x(tick), bottom + 18, "tick middle", TickText(tick, chart.x));
  }
  out += Text((names + kWidth - kValues) / 2, height - 8, "label middle", chart.x.label);
  double top = 8;
  for (const Bar& bar : chart.bars) {
    const double middle = top + kBarHeight / 2;
    out += Text(names - 10, middle + 4, "name end", bar.name);
    out += fmt::format(
        R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" class="bar c{}"/>)", names,
        top, std::max(0.0, x(bar.value) - names), kBarHeight, bar.color % kPalette);
    double end = x(bar.value);
    if (bar.low && bar.high) {
      out += Line(x(*bar.low), middle, x(*bar.high), middle, "whisker");
      out += Line(x(*bar.low), middle - 5, x(*bar.low), middle + 5, "whisker");
      out += Line(x(*bar.high), middle - 5, x(*bar.high), middle + 5, "whisker");
      end = std::max(end, x(*bar.high));
    }
    out += Text(end + 8, middle + 4, "value", bar.label);
    top += kBarHeight + kBarGap;
  }
  out += Line(names, 4, names, bottom, "axis");
  return out + "</svg>";
}

}  // namespace tare::advise
