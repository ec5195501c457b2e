// Base64 as the golden files under tests/golden hold texts; for tests only.
#pragma once

#include <string>
#include <string_view>

namespace tare::model {

inline std::string FromBase64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned value = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    value = (value << 6 | static_cast<unsigned>(kDigits.find(c))) & 0xFFFFFF;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += static_cast<char>(value >> bits & 0xFF);
    }
  }
  return out;
}

}  // namespace tare::model
