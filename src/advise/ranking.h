// Which candidate to take, and whether the evidence is good enough to say so. Pure and
// deterministic: every candidate draws from its own random stream, named after it, so that adding a
// candidate does not change what is said about the others.
//
// A candidate that keeps the service levels competes on cost. The costs' errors are drawn many
// times (Student's t on the logarithm of the rate); p_best is the share of draws in which a
// candidate keeps its levels and is the cheapest of those that do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "econ/serving_cost.h"

namespace tare::advise {

struct Contender {
  std::string name;
  bool feasible = false;           // every service level is shown to be kept
  double slo_probability = 1;      // that they are kept in truth, when feasible
  double usd_per_hour = 0;         // of all its machines
  econ::ServingRates rates;        // of all its machines, at its operating level
  double rate_relative_error = 0;  // standard error ÷ mean
  double rate_degrees_of_freedom = 1;
  // Part of the machine that other programs took while it was measured, 0 to 1.
  double others_share = 0;
};

struct RankingOptions {
  double confidence = 0.95;
  double min_difference = 0.02;
  double utilisation = 1;
  std::optional<econ::Traffic> traffic;  // whole machines for this traffic instead of full load
};

enum class Verdict {
  kPick,
  kNoneFeasible,  // no candidate keeps the service levels
  kTooClose,      // the costs' errors overlap
  kEqual,         // the costs differ by less than min_difference
  kLevelsUnsure,  // the first may well break a service level
  kDisturbed,     // on a quiet machine another could be as cheap as the first
};
const char* ToString(Verdict verdict);  // "pick", "none_feasible", …

struct Standing {
  double usd_per_million_tokens = 0;  // NaN when not feasible
  double low = 0, high = 0;           // 95 % interval of the same
  double p_best = 0;
  // An interval worth printing: a finite one, no wider than a factor of ten up or down.
  bool interval_known() const {
    return low > 0 && usd_per_million_tokens <= 10 * low && high <= 10 * usd_per_million_tokens;
  }
};

struct Ranking {
  Verdict verdict = Verdict::kNoneFeasible;
  std::vector<Standing> standings;   // beside the contenders
  std::vector<std::size_t> order;    // feasible ones by cost, then the others as given
  std::optional<std::size_t> pick;   // set when verdict is kPick
  std::optional<std::size_t> first;  // cheapest feasible by the mean
  std::optional<std::size_t> second;
  double difference = 0;                           // (second's cost − first's) ÷ second's
  double difference_low = 0, difference_high = 0;  // 95 % interval
  // kTooClose: how many times as much measurement would decide, if the difference is as it seems.
  double measurement_factor = 0;
};

Ranking Rank(const std::vector<Contender>& contenders, const RankingOptions& options);

}  // namespace tare::advise
