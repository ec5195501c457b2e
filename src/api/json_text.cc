#include "api/json_text.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace tare::api {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the well-formed UTF-8 character at the front of `text` (Unicode 15, table 3-7); 0 when
// there is none.
std::size_t CharacterLength(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  std::size_t length = 0;
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  }
  if (length == 0 || text.size() < length) return 0;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return length;
}

bool NeedsEscape(char c) { return static_cast<std::uint8_t>(c) < 0x20 || c == '"' || c == '\\'; }

// Whether one of eight bytes may need an escape; never says no when one does.
bool MayNeedEscape(const char* bytes) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHighBits = 0x8080808080808080;
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  const auto zero_byte = [](std::uint64_t x) { return (x - kOnes) & ~x; };
  const std::uint64_t control = (word - 0x20 * kOnes) & ~word;
  return ((control | zero_byte(word ^ ('"' * kOnes)) | zero_byte(word ^ ('\\' * kOnes))) &
          kHighBits) != 0;
}

// The same of a block, for long texts: the compiler makes vector comparisons of it.
constexpr std::size_t kBlock = 64;
bool BlockNeedsEscape(const char* bytes) {
  unsigned char any = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    any = static_cast<unsigned char>(any | (byte < 0x20) | (byte == '"') | (byte == '\\'));
  }
  return any != 0;
}

void AppendEscaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out.append("\\\"");
      return;
    case '\\':
      out.append("\\\\");
      return;
    case '\n':
      out.append("\\n");
      return;
    case '\r':
      out.append("\\r");
      return;
    case '\t':
      out.append("\\t");
      return;
    default:
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
  }
}

}  // namespace

std::string ReplaceIllFormed(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 8);
  while (!text.empty()) {
    const std::size_t length = CharacterLength(text);
    out.append(length == 0 ? kReplacement : text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

void AppendJsonString(std::string& out, std::string_view text) {
  std::string repaired;
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    repaired = ReplaceIllFormed(text);
    text = repaired;
  }
  out.push_back('"');
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    // Long texts (a prompt of 200 KB) are mostly letters.
    while (i + kBlock <= text.size() && !BlockNeedsEscape(text.data() + i)) i += kBlock;
    while (i + 8 <= text.size() && !MayNeedEscape(text.data() + i)) i += 8;
    if (i == text.size()) break;
    if (!NeedsEscape(text[i])) continue;
    out.append(text.substr(begin, i - begin));
    AppendEscaped(out, text[i]);
    begin = i + 1;
  }
  out.append(text.substr(begin));
  out.push_back('"');
}

void AppendJsonNumber(std::string& out, float value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(out), "{}", value);
  } else {
    out.append("null");
  }
}

}  // namespace tare::api
