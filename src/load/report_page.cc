#include "load/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/html.h"

namespace tare::load {
namespace {

constexpr const char* kStyle = R"(
  body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 920px;
         margin: 2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
  p { margin: .3rem 0; } .sub { color: #555; }
  .verdict { padding: .6rem .9rem; border-left: 5px solid #1b7f4b; background: #eef7f1; margin: 1rem 0; }
  .verdict.bad { border-color: #b3261e; background: #fcefee; }
  table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
  th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #e2e2e2; }
  th:first-child, td:first-child, td.l, th.l { text-align: left; }
  td { white-space: nowrap; } td.l { white-space: normal; }
  svg { width: 100%; height: auto; margin: .6rem 0; display: block; break-inside: avoid; }
  svg text { font: 11px system-ui, sans-serif; fill: #444; }
  svg .t { font-size: 13px; font-weight: 600; fill: #1a1a1a; }
  svg .e { text-anchor: end; } svg .m { text-anchor: middle; }
  svg .g { stroke: #e8e8e8; } svg .a { stroke: #999; }
  .numbers { display: flex; flex-wrap: wrap; gap: 1.6rem; margin: 1rem 0; }
  .numbers b { display: block; font-size: 1.45rem; font-weight: 600; }
  details summary { cursor: pointer; }
  @media print { body { margin: 0; font-size: 11pt; } details { display: block; } }
)";

}  // namespace

std::string PageHead(std::string_view title) {
  return fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{}</title><style>{}</style></head><body>",
      EscapeHtml(title), kStyle);
}

std::string PageEnd() { return "</body></html>\n"; }

std::string Ms(double seconds) {
  if (!std::isfinite(seconds)) return "—";
  const double ms = seconds * 1e3;
  return ms < 10    ? fmt::format("{:.2f}", ms)
         : ms < 100 ? fmt::format("{:.1f}", ms)
                    : fmt::format("{:.0f}", ms);
}

// The range of a log axis that holds the finite values, with some air.
Axis LogSeconds(const std::vector<double>& values, std::string label) {
  Axis axis{1e-3, 1, true, std::move(label), true};
  double low = INFINITY, high = 0;
  for (const double v : values) {
    if (std::isfinite(v) && v > 0) {
      low = std::min(low, v);
      high = std::max(high, v);
    }
  }
  if (high > 0) {
    axis.low = std::max(1e-6, low / 1.3);
    axis.high = std::max(high * 1.3, axis.low * 4);
  }
  return axis;
}

}  // namespace tare::load
