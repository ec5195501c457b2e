#include "econ/published.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace tare::econ {
namespace {

// Half of the last digit of "38.2" is 0.05, of "2e8" 5e7, of "1200" 0.5.
double HalfOfLastDigit(std::string_view number) {
  int decimals = 0;
  int exponent = 0;
  const std::size_t e = number.find_first_of("eE");
  const std::string_view mantissa = number.substr(0, e);
  if (const std::size_t point = mantissa.find('.'); point != std::string_view::npos) {
    decimals = static_cast<int>(mantissa.size() - point - 1);
  }
  if (e != std::string_view::npos) {
    std::string_view digits = number.substr(e + 1);
    if (!digits.empty() && digits.front() == '+') digits.remove_prefix(1);
    std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  }
  return 0.5 * std::pow(10.0, exponent - decimals);
}

}  // namespace

std::string Published::text() const {
  std::string shown = FormatNumber(number);
  if (std::abs(number) < 1e6 && number == std::floor(number)) shown = fmt::format("{:.0f}", number);
  return unit.empty() ? shown : fmt::format("{} {}", shown, unit);
}

std::string Published::Show(double value) const {
  // One digit more than was published, and never fewer than three significant ones.
  const double shown_value = value / factor;
  const double magnitude = std::abs(shown_value);
  int decimals = static_cast<int>(std::lround(-std::log10(2 * half_step))) + 1;
  if (magnitude > 0 && std::isfinite(magnitude)) {
    decimals = std::max(decimals, 2 - static_cast<int>(std::floor(std::log10(magnitude))));
  }
  const bool plain = magnitude < 1e6 && decimals >= 0 && decimals <= 6;
  const std::string shown =
      plain ? fmt::format("{:.{}f}", shown_value, decimals) : FormatNumber(shown_value);
  return unit.empty() ? shown : fmt::format("{} {}", shown, unit);
}

Result<Published> ParsePublished(std::string_view text) {
  std::string_view rest = Trim(text);
  if (!rest.empty() && rest.front() == '+') rest.remove_prefix(1);
  TARE_TRY(Quantity quantity, ParseQuantity(rest));
  Published published;
  auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), published.number);
  static_cast<void>(code);  // ParseQuantity has read the same number
  published.half_step =
      HalfOfLastDigit(std::string_view(rest.data(), static_cast<std::size_t>(end - rest.data())));
  published.unit = std::string(
      Trim(std::string_view(end, static_cast<std::size_t>(rest.data() + rest.size() - end))));
  published.dimension = quantity.dimension;
  published.currency = quantity.currency;
  TARE_TRY(Quantity one, ParseQuantity("1 " + published.unit));
  published.factor = one.value;
  return published;
}

}  // namespace tare::econ
