#include "load/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/html.h"

namespace tare::load {
namespace {

constexpr double kWidth = 860, kHeight = 260;
constexpr double kLeft = 64, kRight = 120, kTop = 30, kBottom = 40;
constexpr std::array kColors = {"#1f5fa8", "#c8641b", "#6b7280", "#b3261e"};

double PlotWidth() { return kWidth - kLeft - kRight; }
double PlotHeight() { return kHeight - kTop - kBottom; }

double Share(const Axis& axis, double value) {
  if (axis.log) {
    const double low = std::log(axis.low);
    const double high = std::log(axis.high);
    return high > low ? (std::log(std::max(value, axis.low)) - low) / (high - low) : 0;
  }
  return axis.high > axis.low ? (value - axis.low) / (axis.high - axis.low) : 0;
}
double X(const Axis& axis, double value) {
  return kLeft + std::clamp(Share(axis, value), 0.0, 1.0) * PlotWidth();
}
double Y(const Axis& axis, double value) {
  return kTop + (1 - std::clamp(Share(axis, value), 0.0, 1.0)) * PlotHeight();
}

std::string TickText(const Axis& axis, double value) {
  if (!axis.seconds) {
    return std::abs(value) >= 10'000 ? fmt::format("{:g}k", value / 1000)
                                     : fmt::format("{:g}", value);
  }
  if (value >= 0.9999) return fmt::format("{:g} s", value);
  if (value >= 0.0009999) return fmt::format("{:g} ms", value * 1e3);
  return fmt::format("{:g} µs", value * 1e6);
}

std::vector<double> Ticks(const Axis& axis) {
  std::vector<double> ticks;
  if (axis.log) {
    const double decades = std::log10(axis.high / axis.low);
    for (double power = std::floor(std::log10(axis.low)); power <= std::log10(axis.high) + 1;
         ++power) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        if (decades > 3 && digit != 1.0) continue;
        // The digit goes to a power of ten that is exact, so that labels are.
        const double tick = power >= 0 ? digit * std::pow(10, power) : digit / std::pow(10, -power);
        if (tick >= axis.low * 0.999 && tick <= axis.high * 1.001) ticks.push_back(tick);
      }
    }
    return ticks;
  }
  const double span = axis.high - axis.low;
  if (!(span > 0)) return {axis.low};
  const double raw = span / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double step = raw / power < 1.5   ? power
                      : raw / power < 3.5 ? 2 * power
                      : raw / power < 7.5 ? 5 * power
                                          : 10 * power;
  for (double tick = std::ceil(axis.low / step) * step; tick <= axis.high + step * 1e-6;
       tick += step) {
    ticks.push_back(std::abs(tick) < step * 1e-6 ? 0 : tick);
  }
  return ticks;
}

// A short logarithmic axis begins and ends at a labelled 1, 2 or 5, also when all points are equal.
Axis Rounded(Axis axis) {
  constexpr double kLongest = 1e3, kSlack = 1e-9;
  if (!axis.log || !(axis.low > 0) || !(axis.high >= axis.low) || axis.high > kLongest * axis.low) {
    return axis;
  }
  const auto step = [](double value, bool up) {
    const double power = std::pow(10, std::floor(std::log10(value)));
    double below = power;
    for (const double digit : {1.0, 2.0, 5.0, 10.0}) {
      const double tick = digit * power;
      if (up && tick >= value * (1 - kSlack)) return tick;
      if (tick <= value * (1 + kSlack)) below = tick;
    }
    return below;
  };
  axis.low = step(axis.low, false);
  axis.high = step(axis.high, true);
  if (axis.high <= axis.low) axis.high = step(axis.high * 1.01, true);
  return axis;
}

std::string Frame(const Axis& x, const Axis& y, std::string_view title) {
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">"
      "<text x=\"{}\" y=\"16\" class=\"t\">{}</text>",
      kWidth, kHeight, EscapeHtml(title), kLeft, EscapeHtml(title));
  for (const double tick : Ticks(y)) {
    out += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" class=\"g\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" class=\"k e\">{5}</text>",
        kLeft, kWidth - kRight, Y(y, tick), kLeft - 6, Y(y, tick) + 4,
        EscapeHtml(TickText(y, tick)));
  }
  for (const double tick : Ticks(x)) {
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" class=\"a\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" class=\"k m\">{4}</text>",
        X(x, tick), kHeight - kBottom, kHeight - kBottom + 4, kHeight - kBottom + 17,
        EscapeHtml(TickText(x, tick)));
  }
  out += fmt::format("<text x=\"{}\" y=\"{}\" class=\"k e\">{}</text>", kWidth - kRight,
                     kHeight - 6, EscapeHtml(x.label));
  return out;
}

// White to dark blue, even in lightness.
std::string Blue(double share) {
  const double s = std::clamp(share, 0.0, 1.0);
  const auto mix = [&](double from, double to) {
    return static_cast<int>(std::lround(from + (to - from) * s));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(222, 8), mix(235, 48), mix(247, 107));
}

}  // namespace

std::string LineChart(const std::vector<ChartLine>& lines, const Axis& given_x, const Axis& given_y,
                      std::string_view title, const std::vector<ChartSpan>& spans) {
  const Axis x = Rounded(given_x), y = Rounded(given_y);
  std::string out = Frame(x, y, title);
  for (const ChartSpan& span : spans) {
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"#f3d9b8\" "
        "fill-opacity=\"0.6\"/>",
        X(x, span.x0), kTop, std::max(1.0, X(x, span.x1) - X(x, span.x0)), PlotHeight());
  }
  std::vector<double> label_at;
  for (const ChartLine& line : lines) {
    const char* color = kColors[static_cast<std::size_t>(line.color) % kColors.size()];
    std::string path, points;
    bool pen_down = false;
    double last_y = kHeight - kBottom;
    for (std::size_t i = 0; i < line.x.size() && i < line.y.size(); ++i) {
      if (!std::isfinite(line.x[i]) || !std::isfinite(line.y[i])) {
        pen_down = false;
        continue;
      }
      const double px = X(x, line.x[i]);
      const double py = Y(y, line.y[i]);
      if (!pen_down) {
        path += fmt::format("M{:.1f} {:.1f}", px, py);
      } else if (line.steps) {
        path += fmt::format("H{:.1f}V{:.1f}", px, py);
      } else {
        path += fmt::format("L{:.1f} {:.1f}", px, py);
      }
      pen_down = true;
      last_y = py;
      if (i < line.low.size() && i < line.high.size() && std::isfinite(line.low[i]) &&
          std::isfinite(line.high[i])) {
        points += fmt::format(
            "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\"/>",
            px, Y(y, line.low[i]), Y(y, line.high[i]), color);
      }
      if (line.marks) {
        points += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" fill=\"{}\"/>", px, py,
                              color);
      }
      if (i < line.notes.size()) {
        points += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"k\">{}</text>", px + 6,
                              py - 6, EscapeHtml(line.notes[i]));
      }
    }
    if (path.empty()) continue;
    out += points;
    if (line.joined) {
      out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>", path,
                         color);
    }
    // Labels that would overlap move apart.
    double at = last_y + 4;
    for (bool moved = true; moved;) {
      moved = false;
      for (const double other : label_at) {
        if (std::abs(other - at) < 13) {
          at = other + 13;
          moved = true;
        }
      }
    }
    label_at.push_back(at);
    out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" class=\"k\" style=\"fill:{}\">{}</text>",
                       kWidth - kRight + 6, at, color, EscapeHtml(line.label));
  }
  return out + "</svg>";
}

std::string HeatMap(const std::vector<HeatCell>& cells, const Axis& x, const Axis& y,
                    std::string_view title, std::string_view unit) {
  std::string out = Frame(x, y, title);
  double most = 1;
  for (const HeatCell& cell : cells) most = std::max(most, cell.count);
  const double scale = std::log1p(most);
  for (const HeatCell& cell : cells) {
    if (!(cell.count > 0)) continue;
    const double left = X(x, cell.x0), right = X(x, cell.x1);
    const double top = Y(y, cell.y1), bottom = Y(y, cell.y0);
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "fill=\"{}\"/>",
        left, top, std::max(0.6, right - left), std::max(0.6, bottom - top),
        Blue(std::log1p(cell.count) / scale));
  }
  constexpr int kSteps = 5;
  double shown = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double share = static_cast<double>(i) / (kSteps - 1);
    const double count = std::max(1.0, std::expm1(share * scale));
    if (i > 0 && std::lround(count) == std::lround(shown)) continue;  // few levels: fewer labels
    shown = count;
    out += fmt::format(
        "<rect x=\"{0}\" y=\"{1}\" width=\"14\" height=\"14\" fill=\"{2}\"/>"
        "<text x=\"{3}\" y=\"{4}\" class=\"k\">{5:.0f}{6}</text>",
        kWidth - kRight + 10, kTop + 18.0 * i, Blue(std::log1p(count) / scale),
        kWidth - kRight + 30, kTop + 18.0 * i + 11, count, i == 0 ? fmt::format(" {}", unit) : "");
  }
  return out + "</svg>";
}

}  // namespace tare::load
