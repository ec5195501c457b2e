#include "model/json_text.h"

#include <fmt/format.h>

#include <iterator>

#include "model/detokenizer.h"

namespace tare::model {

void AppendJsonString(std::string_view text, std::string& out) {
  std::string valid;
  if (AppendUtf8Lossy(text, valid) != 0) valid += "\uFFFD";
  out += '"';
  for (const char c : valid) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace tare::model
