#include "econ/quantity.h"

#include <charconv>
#include <cmath>
#include <vector>

#include "base/text.h"

namespace tare::econ {
namespace {

struct Unit {
  std::string_view name;
  double factor;
  BaseUnit base;
};

constexpr double kDay = 86400;
constexpr double kYear = 365 * kDay;
constexpr double kKibi = 1024;

// Plural forms are accepted by dropping a final "s" from names longer than two letters.
constexpr Unit kUnits[] = {
    {"s", 1, BaseUnit::kTime},
    {"ms", 1e-3, BaseUnit::kTime},
    {"us", 1e-6, BaseUnit::kTime},
    {"second", 1, BaseUnit::kTime},
    {"min", 60, BaseUnit::kTime},
    {"minute", 60, BaseUnit::kTime},
    {"h", 3600, BaseUnit::kTime},
    {"hour", 3600, BaseUnit::kTime},
    {"day", kDay, BaseUnit::kTime},
    {"week", 7 * kDay, BaseUnit::kTime},
    {"month", kYear / 12, BaseUnit::kTime},
    {"quarter", kYear / 4, BaseUnit::kTime},
    {"year", kYear, BaseUnit::kTime},
    {"J", 1, BaseUnit::kEnergy},
    {"Wh", 3600, BaseUnit::kEnergy},
    {"kWh", 3.6e6, BaseUnit::kEnergy},
    {"MWh", 3.6e9, BaseUnit::kEnergy},
    {"B", 1, BaseUnit::kData},
    {"byte", 1, BaseUnit::kData},
    {"kB", 1e3, BaseUnit::kData},
    {"MB", 1e6, BaseUnit::kData},
    {"GB", 1e9, BaseUnit::kData},
    {"TB", 1e12, BaseUnit::kData},
    {"KiB", kKibi, BaseUnit::kData},
    {"MiB", kKibi* kKibi, BaseUnit::kData},
    {"GiB", kKibi* kKibi* kKibi, BaseUnit::kData},
    {"TiB", kKibi* kKibi* kKibi* kKibi, BaseUnit::kData},
    {"token", 1, BaseUnit::kToken},
    {"ktoken", 1e3, BaseUnit::kToken},
    {"Mtoken", 1e6, BaseUnit::kToken},
    {"Gtoken", 1e9, BaseUnit::kToken},
    {"request", 1, BaseUnit::kRequest},
    {"call", 1, BaseUnit::kRequest},
    {"case", 1, BaseUnit::kRequest},
    {"FLOP", 1, BaseUnit::kFlop},
    {"GFLOP", 1e9, BaseUnit::kFlop},
    {"TFLOP", 1e12, BaseUnit::kFlop},
    {"PFLOP", 1e15, BaseUnit::kFlop},
    {"TOP", 1e12, BaseUnit::kFlop},
    {"person", 1, BaseUnit::kPerson},
    {"people", 1, BaseUnit::kPerson},
    {"device", 1, BaseUnit::kDevice},
    {"instance", 1, BaseUnit::kDevice},
};

std::string_view TrimPlural(std::string_view word) {
  return word.size() > 2 && word.back() == 's' ? word.substr(0, word.size() - 1) : word;
}

bool IsCurrency(std::string_view word) {
  if (word.size() != 3) return false;
  for (char c : word) {
    if (c < 'A' || c > 'Z') return false;
  }
  return word != "TOP";
}

// Multiplies `quantity` by `word` to the power `sign`.
Status ApplyUnit(std::string_view word, int sign, Quantity& quantity) {
  auto apply = [&](double factor, BaseUnit base, int exponent) {
    quantity.value *= sign > 0 ? factor : 1 / factor;
    auto& slot = quantity.dimension[static_cast<std::size_t>(base)];
    slot = static_cast<std::int8_t>(slot + sign * exponent);
  };
  if (word == "%" || word == "point" || word == "points") {
    quantity.value *= sign > 0 ? 0.01 : 100;
    return {};
  }
  if (word == "x" || word == "1") return {};
  // Watts are joules a second.
  for (auto [name, factor] :
       {std::pair<std::string_view, double>{"W", 1}, {"kW", 1e3}, {"MW", 1e6}}) {
    if (word != name) continue;
    apply(factor, BaseUnit::kEnergy, 1);
    apply(1, BaseUnit::kTime, -1);
    return {};
  }
  std::string_view money = word;
  double scale = 1;
  if (word.size() == 4 && (word[0] == 'k' || word[0] == 'M')) {
    money = word.substr(1);
    scale = word[0] == 'k' ? 1e3 : 1e6;
  }
  if (IsCurrency(money)) {
    if (!quantity.currency.empty() && quantity.currency != money) {
      return Fail(ErrorKind::kInvalidArgument, "mixes the currencies {} and {}", quantity.currency,
                  money);
    }
    quantity.currency = std::string(money);
    apply(scale, BaseUnit::kMoney, 1);
    return {};
  }
  for (const Unit& unit : kUnits) {
    if (unit.name == word || unit.name == TrimPlural(word)) {
      apply(unit.factor, unit.base, 1);
      return {};
    }
  }
  std::vector<std::string> names;
  for (const Unit& unit : kUnits) names.emplace_back(unit.name);
  const std::string near = NearestName(word, names);
  return Fail(ErrorKind::kInvalidArgument, "unknown unit '{}'{}", word,
              near.empty() ? std::string() : fmt::format(", did you mean '{}'?", near));
}

Status ApplyUnits(std::string_view units, Quantity& quantity) {
  int sign = 1;
  while (true) {
    const std::size_t end = units.find_first_of("/*");
    const std::string_view word = Trim(units.substr(0, end));
    if (word.empty()) {
      return Fail(ErrorKind::kInvalidArgument, "has an operator without a unit beside it");
    }
    TARE_RETURN_IF_ERROR(ApplyUnit(word, sign, quantity));
    if (end == std::string_view::npos) return {};
    sign = units[end] == '/' ? -1 : 1;
    units.remove_prefix(end + 1);
  }
}

}  // namespace

Result<Quantity> ParseQuantity(std::string_view text) {
  const std::string_view trimmed = Trim(text);
  Quantity quantity;
  const char* begin = trimmed.data();
  const char* end = begin + trimmed.size();
  if (begin != end && *begin == '+') ++begin;
  auto [rest, code] = std::from_chars(begin, end, quantity.value);
  if (code != std::errc() || !std::isfinite(quantity.value)) {
    return Fail(ErrorKind::kInvalidArgument,
                "'{}' does not start with a number; write a number and a unit such as '12.5 GB/s'",
                text);
  }
  const std::string_view units = Trim(std::string_view(rest, static_cast<std::size_t>(end - rest)));
  if (!units.empty()) {
    if (auto status = ApplyUnits(units, quantity); !status) {
      return Context(status.error(), "'{}'", text);
    }
  }
  return quantity;
}

Result<double> ParseIn(std::string_view text, std::string_view unit, std::string_view currency) {
  TARE_TRY(Quantity quantity, ParseQuantity(text));
  Quantity one{1, {}, {}};
  if (!unit.empty()) {
    std::string spelled(unit);
    if (const std::size_t at = spelled.find("MONEY"); at != std::string::npos) {
      spelled.replace(at, 5, currency);
    }
    TARE_RETURN_IF_ERROR(ApplyUnits(spelled, one));
    if (quantity.dimension != one.dimension) {
      return Fail(ErrorKind::kInvalidArgument, "'{}' has {}; write it in {}, or a multiple of it",
                  text, quantity.dimension == Dimension{} ? "no unit" : "a unit of another kind",
                  spelled);
    }
    if (!one.currency.empty() && quantity.currency != one.currency) {
      return Fail(ErrorKind::kInvalidArgument,
                  "'{}' is in {}, the file's currency is {}; convert it first (rates are not ours "
                  "to guess)",
                  text, quantity.currency, one.currency);
    }
  } else if (quantity.dimension != Dimension{}) {
    return Fail(ErrorKind::kInvalidArgument, "'{}' has a unit where a plain number belongs", text);
  }
  return quantity.value / one.value;
}

std::string FormatSi(double value) {
  const double magnitude = std::abs(value);
  for (auto [scale, suffix] :
       {std::pair<double, const char*>{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}}) {
    if (magnitude >= scale) return fmt::format("{:.4g}{}", value / scale, suffix);
  }
  return fmt::format("{:.4g}", value);
}

std::string FormatNumber(double value) {
  if (!std::isfinite(value)) return "n/a";
  const double magnitude = std::abs(value);
  if (magnitude != 0 && magnitude < 1000) return fmt::format("{:.4g}", value);
  if (magnitude >= 1e15) return fmt::format("{:.4g}", value);
  std::string digits = fmt::format("{:.0f}", magnitude);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return value < 0 ? "-" + digits : digits;
}

}  // namespace tare::econ
