// Any case's answer as text for a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "econ/case_common.h"
#include "econ/cases.h"
#include "econ/quantity.h"
#include "econ/roi_case.h"

namespace tare::econ {
namespace {

using nlohmann::json;

// Longer texts go below a table, not into a column.
constexpr std::size_t kWidestCell = 28;
constexpr std::size_t kWidestTable = 150;

std::string Words(std::string key) {
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

std::string Scalar(const json& item) {
  if (item.is_number()) return FormatNumber(item.get<double>());
  if (item.is_boolean()) return item.get<bool>() ? "yes" : "no";
  if (item.is_string()) return item.get<std::string>();
  return "n/a";
}

bool IsTable(const json& item) {
  return item.is_array() && !item.empty() && item.front().is_object();
}

// One object's cells: what a nested object holds counts as its own ("published": the figure and
// whether it follows).
std::vector<std::pair<std::string, json>> Cells(const json& object) {
  std::vector<std::pair<std::string, json>> cells;
  for (const auto& [key, item] : object.items()) {
    if (key == "name") continue;
    if (key == "published" && item.is_object()) {
      cells.emplace_back("published", item["published"]);
      cells.emplace_back("follows", item["follows"]);
      if (item.contains("note")) cells.emplace_back("note", item["note"]);
    } else if (!IsTable(item) && !item.is_object()) {
      cells.emplace_back(key, item);
    }
  }
  return cells;
}

std::string Numbers(const json& list) {
  std::string text;
  for (const json& number : list) text += (text.empty() ? "" : " ") + Scalar(number);
  return text;
}

using Lines = std::vector<std::vector<std::string>>;

std::size_t WidthOf(const Lines& lines) {
  std::size_t sum = 0;
  for (std::size_t c = 0; c < lines.front().size(); ++c) {
    std::size_t width = 0;
    for (const auto& line : lines) width = std::max(width, line[c].size());
    sum += width + 2;
  }
  return sum;
}

// Properties down, items across: for items with many of them.
Lines Transposed(const Lines& lines) {
  Lines turned(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < line.size(); ++c) turned[c].push_back(line[c]);
  }
  return turned;
}

std::string Table(const json& rows) {
  std::vector<std::string> columns;
  std::string notes;
  for (const json& row : rows) {
    for (const auto& [key, item] : Cells(row)) {
      const bool wide = item.is_string() && item.get<std::string>().size() > kWidestCell;
      if (wide || key == "note") {
        notes += fmt::format("  {}: {}\n", row.value("name", ""), Scalar(item));
      } else if (std::find(columns.begin(), columns.end(), key) == columns.end()) {
        columns.push_back(key);
      }
    }
  }
  // "published" and "follows" read best side by side at the end.
  for (const char* last : {"published", "follows"}) {
    const auto at = std::find(columns.begin(), columns.end(), last);
    if (at != columns.end()) std::rotate(at, at + 1, columns.end());
  }
  Lines cells(1);
  cells[0].push_back("");
  for (const std::string& column : columns) cells[0].push_back(Words(column));
  for (const json& row : rows) {
    std::vector<std::string>& line = cells.emplace_back();
    line.push_back(row.value("name", ""));
    const auto values = Cells(row);
    for (const std::string& column : columns) {
      const auto found = std::find_if(values.begin(), values.end(),
                                      [&](const auto& cell) { return cell.first == column; });
      line.push_back(found == values.end()      ? ""
                     : found->second.is_array() ? Numbers(found->second)
                                                : Scalar(found->second));
    }
  }
  if (WidthOf(cells) > kWidestTable) cells = Transposed(cells);
  std::string text;
  for (const auto& line : cells) {
    std::string out;
    for (std::size_t c = 0; c < line.size(); ++c) {
      std::size_t width = 0;
      for (const auto& other : cells) width = std::max(width, other[c].size());
      out += c == 0 ? fmt::format("  {:<{}}", line[c], width)
                    : fmt::format("  {:>{}}", line[c], width);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  }
  return text + notes;
}

std::string PublishedLine(const json& published) {
  return fmt::format(
      "published {}: {}\n", Scalar(published["published"]),
      published["follows"].get<bool>() ? "follows" : published["note"].get<std::string>());
}

std::string Section(const json& object) {
  std::string text;
  for (const auto& [key, item] : object.items()) {
    if (key == "name" || key == "source" || key == "assumes" || key == "currency") continue;
    if (IsTable(item)) {
      text += "\n" + (key == "options" ? std::string() : Words(key) + "\n") + Table(item);
    } else if (key == "published" && item.is_object()) {
      text += PublishedLine(item);
    } else if (item.is_object()) {
      text += "\n" + Words(key) + "\n" + Section(item);
    } else if (item.is_array()) {
      text += fmt::format("{}: {}\n", Words(key), Numbers(item));
    } else {
      text += fmt::format("{}: {}\n", Words(key), Scalar(item));
    }
  }
  return text;
}

}  // namespace

std::string CaseText(std::string_view kind, const json& answer) {
  std::string text = answer.value("name", std::string(kind));
  if (answer.contains("currency")) {
    text += ", " + AmountsIn(answer["currency"].get<std::string>());
  }
  if (answer.contains("source")) {
    text += fmt::format(" ({})", answer["source"].get<std::string>());
  }
  text += "\n";
  if (answer.contains("assumes")) {
    text += fmt::format("assumed: {}\n", answer["assumes"].get<std::string>());
  }
  return text + (kind == "roi" ? RoiText(answer) : Section(answer));
}

}  // namespace tare::econ
