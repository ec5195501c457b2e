#include "base/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace tare {
namespace {

// Reads a non-empty decimal number at the front of `text` and removes it.
bool TakeNumber(std::string_view& text, double& value) {
  if (text.empty() || !((text[0] >= '0' && text[0] <= '9') || text[0] == '.' || text[0] == '-')) {
    return false;  // from_chars would take "inf" and "nan"
  }
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (text[0] == '-' && (text.size() < 2 || text[1] == 'i' || text[1] == 'n')) return false;
  const auto [stop, code] = std::from_chars(begin, end, value);
  if (code != std::errc() || !std::isfinite(value)) return false;
  text.remove_prefix(static_cast<std::size_t>(stop - begin));
  return true;
}

std::string_view TakeLetters(std::string_view& text) {
  std::size_t n = 0;
  // Bytes above 127 are letters here so that "µs" is one unit.
  while (n < text.size() && (std::isalpha(static_cast<unsigned char>(text[n])) != 0 ||
                             static_cast<unsigned char>(text[n]) >= 0x80)) {
    ++n;
  }
  const std::string_view unit = text.substr(0, n);
  text.remove_prefix(n);
  return unit;
}

struct Unit {
  std::string_view name;
  double factor;
};

template <std::size_t N>
const Unit* FindUnit(const std::array<Unit, N>& units, std::string_view name) {
  const auto it =
      std::find_if(units.begin(), units.end(), [&](const Unit& unit) { return unit.name == name; });
  return it == units.end() ? nullptr : &*it;
}

constexpr std::array<Unit, 9> kTimeUnits = {{{"ns", 1},
                                             {"us", 1e3},
                                             {"µs", 1e3},
                                             {"ms", 1e6},
                                             {"s", 1e9},
                                             {"m", 60e9},
                                             {"min", 60e9},
                                             {"h", 3600e9},
                                             {"d", 86400e9}}};

constexpr double kKibi = 1024;
constexpr std::array<Unit, 10> kByteUnits = {{{"", 1},
                                              {"B", 1},
                                              {"KB", 1e3},
                                              {"MB", 1e6},
                                              {"GB", 1e9},
                                              {"TB", 1e12},
                                              {"KiB", kKibi},
                                              {"MiB", kKibi* kKibi},
                                              {"GiB", kKibi* kKibi* kKibi},
                                              {"TiB", kKibi* kKibi* kKibi* kKibi}}};

// Seconds in the unit a rate is given over.
constexpr std::array<Unit, 8> kPerUnits = {{{"s", 1},
                                            {"sec", 1},
                                            {"m", 60},
                                            {"min", 60},
                                            {"h", 3600},
                                            {"hour", 3600},
                                            {"d", 86400},
                                            {"day", 86400}}};

}  // namespace

Result<double> ParseNumber(std::string_view text) {
  std::string_view rest = Trim(text);
  double value = 0;
  if (!TakeNumber(rest, value) || !rest.empty()) {
    return Fail(ErrorKind::kInvalidArgument, "expected a number, got '{}'", text);
  }
  return value;
}

Result<std::int64_t> ParseInteger(std::string_view text) {
  const std::string_view trimmed = Trim(text);
  std::int64_t value = 0;
  const char* end = trimmed.data() + trimmed.size();
  const auto [stop, code] = std::from_chars(trimmed.data(), end, value);
  if (code == std::errc::result_out_of_range) {
    return Fail(ErrorKind::kInvalidArgument, "the whole number '{}' is too large", text);
  }
  if (trimmed.empty() || code != std::errc() || stop != end) {
    return Fail(ErrorKind::kInvalidArgument, "expected a whole number, got '{}'", text);
  }
  return value;
}

Result<Nanos> ParseDuration(std::string_view text) {
  std::string_view rest = Trim(text);
  const auto refuse = [&] {
    return Fail(ErrorKind::kInvalidArgument,
                "expected a duration with its unit (ns, us, ms, s, m, h, d) such as 500ms or "
                "1m30s, got '{}'",
                text);
  };
  if (rest == "0") return Nanos(0);
  if (rest.empty()) return refuse();
  double total = 0;
  while (!rest.empty()) {
    double number = 0;
    if (!TakeNumber(rest, number) || number < 0) return refuse();
    rest = Trim(rest);
    const Unit* unit = FindUnit(kTimeUnits, TakeLetters(rest));
    if (unit == nullptr) return refuse();
    total += number * unit->factor;
    rest = Trim(rest);
  }
  // About 292 years; the cast below is exact in range.
  if (!(total < 9.2e18)) {
    return Fail(ErrorKind::kInvalidArgument, "the duration '{}' is too long", text);
  }
  return Nanos(static_cast<std::int64_t>(std::llround(total)));
}

Result<std::uint64_t> ParseByteSize(std::string_view text) {
  std::string_view rest = Trim(text);
  double number = 0;
  if (TakeNumber(rest, number) && number >= 0) {
    rest = Trim(rest);
    const Unit* unit = FindUnit(kByteUnits, TakeLetters(rest));
    if (unit != nullptr && rest.empty()) {
      const double bytes = number * unit->factor;
      if (bytes < 1.8e19) return static_cast<std::uint64_t>(bytes);
      return Fail(ErrorKind::kInvalidArgument, "the size '{}' is too large", text);
    }
  }
  return Fail(ErrorKind::kInvalidArgument,
              "expected a size such as 512MiB or 16 GB (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB), "
              "got '{}'",
              text);
}

Result<double> ParseRatePerSecond(std::string_view text) {
  std::string_view rest = Trim(text);
  double number = 0;
  if (TakeNumber(rest, number) && number >= 0) {
    rest = Trim(rest);
    if (rest.empty()) return number;
    if (rest.front() == '/') {
      const Unit* unit = FindUnit(kPerUnits, Trim(rest.substr(1)));
      if (unit != nullptr) return number / unit->factor;
    }
  }
  return Fail(ErrorKind::kInvalidArgument,
              "expected a rate such as 12/s, 30/min, 1000/h or 20000/day, got '{}'", text);
}

Result<double> ParseFraction(std::string_view text) {
  std::string_view rest = Trim(text);
  double number = 0;
  if (TakeNumber(rest, number)) {
    rest = Trim(rest);
    if (rest == "%") {
      number /= 100;
      rest = {};
    }
    if (rest.empty() && number >= 0 && number <= 1) return number;
  }
  return Fail(ErrorKind::kInvalidArgument,
              "expected a share between 0% and 100% such as 85% or 0.85, got '{}'", text);
}

Result<double> ParseUsdPerHour(std::string_view text) {
  std::string_view rest = Trim(text);
  if (!rest.empty() && rest.front() == '$') rest.remove_prefix(1);
  double number = 0;
  if (TakeNumber(rest, number) && number >= 0) {
    rest = Trim(rest);
    if (rest.empty() || rest == "/h" || rest == "/hour") return number;
    if (rest == "/month") return number / 730;
    if (rest == "/year") return number / 8760;
  }
  return Fail(ErrorKind::kInvalidArgument,
              "expected a price in US dollars such as 0.12/h, 90/month or 1000/year, got '{}'",
              text);
}

std::string FormatDuration(Nanos duration) {
  const double s = ToSeconds(duration);
  const double size = std::abs(s);
  if (size >= 60) {
    const auto whole = static_cast<std::int64_t>(std::llround(s));
    if (size >= 3600) return fmt::format("{}h {}m", whole / 3600, whole / 60 % 60);
    return fmt::format("{}m {}s", whole / 60, whole % 60);
  }
  const auto scaled = [](double value, const char* unit) {
    const double magnitude = std::abs(value);
    const int decimals = magnitude < 10 ? 2 : magnitude < 100 ? 1 : 0;
    return fmt::format("{:.{}f} {}", value, decimals, unit);
  };
  if (size >= 1) return scaled(s, "s");
  if (size >= 1e-3) return scaled(s * 1e3, "ms");
  if (size >= 1e-6) return scaled(s * 1e6, "µs");
  return fmt::format("{} ns", duration.count());
}

}  // namespace tare
