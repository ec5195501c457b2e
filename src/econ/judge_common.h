// Shared by the judges: verdicts from missing inputs and from comparing a stated figure with what
// its inputs give.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "econ/claim.h"

namespace tare::econ {

// Data sheets round: a figure this close above a ceiling is not called impossible.
inline constexpr double kCeilingTolerance = 0.02;

struct Needed {
  std::string_view name;
  bool present;
};
// "needs X and Y, not stated" for those that are absent; nothing when all are there.
std::optional<Judgement> Missing(std::initializer_list<Needed> inputs);

// Plausible when the stated figure's rounding range meets the computed one, else inconsistent.
// `exact` is the result from the inputs as written; `how` the arithmetic up to it, "6 / 3 =".
Judgement Compare(std::string how, const Interval& computed, double exact, const Published& stated);

// 12.3 GB, 439 GiB and the like for the arithmetic line.
std::string Gigabytes(double bytes);
std::string Percent(double share);

double RelativeMargin(double claimed, double computed);

}  // namespace tare::econ
