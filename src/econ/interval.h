// Closed intervals of reals: what a rounded published figure may have been. Operations return an
// interval that holds every result (it may be wider when a variable occurs twice; it is never
// narrower). Pure values.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace tare::econ {

struct Interval {
  double low = 0;
  double high = 0;

  static Interval Of(double value) { return {value, value}; }
  static Interval Whole() {
    return {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  }
  bool Contains(double value) const { return low <= value && value <= high; }
  bool Overlaps(const Interval& other) const { return low <= other.high && other.low <= high; }
  double Middle() const { return 0.5 * (low + high); }
  Interval Widened(double share) const {
    return {low - std::abs(low) * share, high + std::abs(high) * share};
  }
};

inline Interval operator+(Interval a, Interval b) { return {a.low + b.low, a.high + b.high}; }
inline Interval operator-(Interval a, Interval b) { return {a.low - b.high, a.high - b.low}; }

inline Interval operator*(Interval a, Interval b) {
  // 0 * infinity counts as 0: the bound of a product with an exact zero.
  auto times = [](double x, double y) { return x == 0 || y == 0 ? 0.0 : x * y; };
  const double corners[] = {times(a.low, b.low), times(a.low, b.high), times(a.high, b.low),
                            times(a.high, b.high)};
  return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
}

// Whole() when the divisor may be zero.
inline Interval operator/(Interval a, Interval b) {
  if (b.low <= 0 && b.high >= 0) return Interval::Whole();
  return a * Interval{1 / b.high, 1 / b.low};
}

inline Interval Min(Interval a, Interval b) {
  return {std::min(a.low, b.low), std::min(a.high, b.high)};
}
inline Interval Max(Interval a, Interval b) {
  return {std::max(a.low, b.low), std::max(a.high, b.high)};
}

// a^b for a >= 0, or any a with an exact whole b; Whole() otherwise.
inline Interval Power(Interval a, Interval b) {
  const bool whole = b.low == b.high && b.low == std::floor(b.low);
  if (a.low < 0 && !whole) return Interval::Whole();
  double corners[5] = {std::pow(a.low, b.low), std::pow(a.low, b.high), std::pow(a.high, b.low),
                       std::pow(a.high, b.high), std::pow(a.low, b.low)};
  if (a.low < 0 && a.high > 0) {
    if (b.low < 0) return Interval::Whole();
    corners[4] = 0;  // an even power dips to zero inside
  }
  return {*std::min_element(corners, corners + 5), *std::max_element(corners, corners + 5)};
}

}  // namespace tare::econ
