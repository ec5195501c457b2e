// A figure as it was published: its number, its unit, and how precisely it was written. "38.2"
// stands for anything from 38.15 to 38.25, so two figures disagree only when no values that round
// to them agree.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "econ/interval.h"
#include "econ/quantity.h"

namespace tare::econ {

struct Published {
  double number = 0;     // as written, without the unit
  double half_step = 0;  // half of the last written digit
  double factor = 1;     // base units in one of its units
  std::string unit;      // as written
  Dimension dimension{};
  std::string currency;

  double base() const { return number * factor; }
  Interval range() const {
    return Interval{(number - half_step), (number + half_step)} * Interval::Of(factor);
  }
  bool percent() const { return unit == "%"; }
  // "38.2 requests/s"
  std::string text() const;
  // `value` in base units, shown in this figure's unit.
  std::string Show(double value) const;
};

Result<Published> ParsePublished(std::string_view text);

}  // namespace tare::econ
