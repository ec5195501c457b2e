#include "load/csv.h"

namespace tare::load {

Result<std::vector<std::vector<std::string>>> ParseCsv(std::string_view text) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row;
  std::string field;
  bool quoted = false;  // inside quotes
  bool closed = false;  // a quoted field has ended
  std::size_t line = 1, opened = 0;
  const auto end_field = [&] {
    row.push_back(std::move(field));
    field.clear();
    closed = false;
  };
  const auto end_row = [&] {
    const bool empty = row.empty() && field.empty() && !closed;
    if (!empty) {
      end_field();
      rows.push_back(std::move(row));
      row.clear();
    }
    closed = false;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += '"';
        ++i;
      } else {
        quoted = false;
        closed = true;
      }
    } else if (c == '"' && field.empty() && !closed) {
      quoted = true;
      opened = line;
    } else if (c == ',') {
      end_field();
    } else if (c == '\n') {
      end_row();
    } else if (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') {
      continue;
    } else if (closed) {
      return Fail(ErrorKind::kInvalidArgument, "line {}: text after a closing quote", line);
    } else {
      field += c;
    }
  }
  if (quoted) {
    return Fail(ErrorKind::kInvalidArgument, "line {}: the quote is never closed", opened);
  }
  end_row();
  return rows;
}

}  // namespace tare::load
