#include "econ/matrix_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/html.h"
#include "econ/quantity.h"

namespace tare::econ {
namespace {

constexpr std::size_t kGap = 2;

// Shade of a cell: deeper is farther from the break between good and bad.
std::string Shade(const MatrixTable& table, double cell, double low, double high) {
  constexpr double kDeepest = 45;  // per cent of the colour, so that text stays readable
  if (table.higher_is_better && low < 0 && high > 0) {
    const double reach = std::max(-low, high);
    return fmt::format("color-mix(in srgb, var({}) {:.0f}%, transparent)", cell < 0 ? "--b" : "--c",
                       std::abs(cell) / reach * kDeepest);
  }
  const double share = high > low ? (cell - low) / (high - low) : 0;
  return fmt::format("color-mix(in srgb, var({}) {:.0f}%, transparent)",
                     table.higher_is_better ? "--c" : "--b", share * kDeepest);
}

}  // namespace

std::string MatrixText(const MatrixTable& table) {
  if (table.cells.empty()) return {};
  std::size_t first = table.rows_name.size();
  for (const std::string& row : table.rows) first = std::max(first, row.size());
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t width = table.columns[c].size();
    for (const auto& row : table.cells) width = std::max(width, FormatNumber(row[c]).size());
    widths.push_back(width + kGap);
  }
  std::string text =
      fmt::format("  {:<{}}  {}\n  {:<{}}", "", first, table.columns_name, table.rows_name, first);
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    text += fmt::format("{:>{}}", table.columns[c], widths[c]);
  }
  text += "\n";
  for (std::size_t r = 0; r < table.cells.size(); ++r) {
    text += fmt::format("  {:<{}}", table.rows[r], first);
    for (std::size_t c = 0; c < table.cells[r].size(); ++c) {
      text += fmt::format("{:>{}}", FormatNumber(table.cells[r][c]), widths[c]);
    }
    text += "\n";
  }
  return text;
}

std::string MatrixHtml(const MatrixTable& table) {
  if (table.cells.empty()) return {};
  double low = table.cells[0][0], high = low;
  for (const auto& row : table.cells) {
    for (double cell : row) {
      low = std::min(low, cell);
      high = std::max(high, cell);
    }
  }
  std::string html = fmt::format(
      "<table class=\"matrix\">\n<tr><th></th><th class=\"n\" colspan=\"{}\">{}</th></tr>\n"
      "<tr><th>{}</th>",
      table.columns.size(), EscapeHtml(table.columns_name), EscapeHtml(table.rows_name));
  for (const std::string& column : table.columns) {
    html += fmt::format("<th class=\"n\">{}</th>", EscapeHtml(column));
  }
  html += "</tr>\n";
  for (std::size_t r = 0; r < table.cells.size(); ++r) {
    html += fmt::format("<tr><th>{}</th>", EscapeHtml(table.rows[r]));
    for (double cell : table.cells[r]) {
      html += fmt::format("<td class=\"n\" style=\"background:{}\">{}</td>",
                          Shade(table, cell, low, high), FormatNumber(cell));
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

}  // namespace tare::econ
