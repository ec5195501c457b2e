#include "base/rfc3339.h"

#include <cctype>
#include <optional>

namespace tare {
namespace {

// Reads exactly `digits` digits at the front of `text` and removes them.
std::optional<int> TakeNumber(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int value = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) return std::nullopt;
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return value;
}

bool TakeChar(std::string_view& text, std::string_view accepted) {
  if (text.empty() || accepted.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<std::chrono::system_clock::time_point> Parse(std::string_view text) {
  namespace ch = std::chrono;
  const auto year = TakeNumber(text, 4);
  if (!year || !TakeChar(text, "-")) return std::nullopt;
  const auto month = TakeNumber(text, 2);
  if (!month || !TakeChar(text, "-")) return std::nullopt;
  const auto day = TakeNumber(text, 2);
  if (!day || !TakeChar(text, "Tt ")) return std::nullopt;
  const auto hour = TakeNumber(text, 2);
  if (!hour || *hour > 23 || !TakeChar(text, ":")) return std::nullopt;
  const auto minute = TakeNumber(text, 2);
  if (!minute || *minute > 59 || !TakeChar(text, ":")) return std::nullopt;
  const auto second = TakeNumber(text, 2);
  if (!second || *second > 60) return std::nullopt;  // 60: a leap second
  std::int64_t nanos = 0;
  if (TakeChar(text, ".")) {
    std::int64_t unit = 100'000'000;
    if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) == 0) return std::nullopt;
    while (const auto digit = TakeNumber(text, 1)) {
      nanos += *digit * unit;
      unit /= 10;
    }
  }
  int offset_minutes = 0;
  if (!TakeChar(text, "Zz")) {
    const bool negative = !text.empty() && text.front() == '-';
    if (!TakeChar(text, "+-")) return std::nullopt;
    const auto hours = TakeNumber(text, 2);
    if (!hours || *hours > 23 || !TakeChar(text, ":")) return std::nullopt;
    const auto minutes = TakeNumber(text, 2);
    if (!minutes || *minutes > 59) return std::nullopt;
    offset_minutes = (*hours * 60 + *minutes) * (negative ? -1 : 1);
  }
  if (!text.empty()) return std::nullopt;
  const ch::year_month_day date(ch::year(*year), ch::month(static_cast<unsigned>(*month)),
                                ch::day(static_cast<unsigned>(*day)));
  if (!date.ok()) return std::nullopt;
  // system_clock counts nanoseconds in 64 bits: 1677 to 2262.
  if (*year < 1700 || *year > 2200) return std::nullopt;
  const auto time = ch::sys_days(date) + ch::hours(*hour) + ch::minutes(*minute - offset_minutes) +
                    ch::seconds(*second) + ch::nanoseconds(nanos);
  return ch::time_point_cast<ch::system_clock::duration>(time);
}

}  // namespace

std::string FormatRfc3339(std::chrono::system_clock::time_point time) {
  namespace ch = std::chrono;
  const auto millis = ch::floor<ch::milliseconds>(time);
  const auto day = ch::floor<ch::days>(millis);
  const ch::year_month_day date(day);
  const auto in_day = millis - day;
  const auto seconds = ch::duration_cast<ch::seconds>(in_day).count();
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     seconds / 3600, seconds / 60 % 60, seconds % 60, in_day.count() % 1000);
}

Result<std::chrono::system_clock::time_point> ParseRfc3339(std::string_view text) {
  if (const auto time = Parse(text)) return *time;
  return Fail(ErrorKind::kInvalidArgument,
              "'{}' is not an RFC 3339 time; write it like 2026-11-30T10:53:42Z", text);
}

}  // namespace tare
