// Cells of CSV files (RFC 4180). Pure.
#pragma once

#include <string>
#include <string_view>

namespace tare::econ {

// Quoted when needed, quotes doubled.
inline std::string CsvCell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + '"';
}

}  // namespace tare::econ
