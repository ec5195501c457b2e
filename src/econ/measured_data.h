// Measured data that tests and the calibration read when it is there (never required): CSV files
// of published server measurements beside the project's folder.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/text.h"

namespace tare::econ {

using CsvRow = std::map<std::string, std::string>;

// TARE_SHARED_DATA, else ../shared/data beside the source tree; the perf/ folder of it.
inline std::filesystem::path MeasuredDataDir(const std::filesystem::path& source_dir) {
  const char* folder = std::getenv("TARE_SHARED_DATA");
  const std::filesystem::path data =
      folder != nullptr ? std::filesystem::path(folder) : source_dir / "../shared/data";
  return data / "perf";
}

// Rows of a CSV file whose first line names the columns; no quoting. Empty when unreadable.
inline std::vector<CsvRow> ReadCsv(const std::filesystem::path& path) {
  std::vector<CsvRow> rows;
  Result<std::string> text = ReadFile(path);
  if (!text) return rows;
  std::vector<std::string> names;
  for (std::string_view line : Split(*text, '\n')) {
    if (Trim(line).empty()) continue;
    const std::vector<std::string_view> cells = Split(line, ',');
    if (names.empty()) {
      for (std::string_view cell : cells) names.emplace_back(Trim(cell));
      continue;
    }
    CsvRow& row = rows.emplace_back();
    for (std::size_t i = 0; i < cells.size() && i < names.size(); ++i) {
      row[names[i]] = std::string(Trim(cells[i]));
    }
  }
  return rows;
}

}  // namespace tare::econ
