// Numbers with units, as scenario, catalogue and claims files write them: "0.12 USD/kWh",
// "3350 GB/s", "5e8 tokens/day", "12 %/year", "28.5 kUSD/year".
//
// A quantity is a number and a product of units; reading it "in" a unit checks that the two have
// the same dimension, so a missing or wrong unit is an error and never a factor of a thousand.
// Currencies are three capital letters (ISO 4217; XXX when none was published), never converted.
// A year is 365 days, a month a twelfth of it. Thread safety: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tare::econ {

// Exponents of the base units: money, second, joule, byte, token, request, FLOP, person, device.
enum class BaseUnit { kMoney, kTime, kEnergy, kData, kToken, kRequest, kFlop, kPerson, kDevice };
inline constexpr int kBaseUnits = 9;
using Dimension = std::array<std::int8_t, kBaseUnits>;

struct Quantity {
  double value = 0;  // in base units
  Dimension dimension{};
  std::string currency;  // empty when no money is involved
};

// "12.5 GB/s", "62 %", "3" (a plain number has no dimension).
Result<Quantity> ParseQuantity(std::string_view text);

// The value of `text` measured in `unit`: ParseIn("1 TB/s", "GB/s") is 1000. In `unit` the word
// "MONEY" stands for `currency`. Fails when the dimensions or the currencies differ.
Result<double> ParseIn(std::string_view text, std::string_view unit,
                       std::string_view currency = {});

// "1.23 M", "456 k", "0.0123": four significant digits with a metric suffix for counts.
std::string FormatSi(double value);
// "1,234,567" or "0.0123": money and counts as people read them.
std::string FormatNumber(double value);

}  // namespace tare::econ
