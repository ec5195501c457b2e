#include "advise/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "advise/uncertainty.h"

namespace tare::advise {
namespace {

// Enough for a standard error of 0.3 points on a probability of 95 %.
constexpr int kDraws = 4000;
constexpr double kIntervalConfidence = 0.95;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// FNV-1a: the same name gives the same stream on every machine.
std::uint64_t Seed(const std::string& name) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  return hash;
}

// The cost when the true rate is `factor` times the measured one.
double Cost(const Contender& contender, const RankingOptions& options, double factor) {
  econ::ServingCostInputs inputs;
  inputs.machine_usd_per_hour = contender.usd_per_hour;
  inputs.rates = contender.rates;
  inputs.rates.requests_per_s *= factor;
  inputs.rates.input_tokens_per_s *= factor;
  inputs.rates.output_tokens_per_s *= factor;
  inputs.utilisation = options.utilisation;
  if (options.traffic) {
    const auto fleet = econ::FleetFor(inputs, *options.traffic);
    return fleet ? fleet->usd_per_million_tokens : kNone;
  }
  const auto cost = econ::CostOfServing(inputs);
  return cost ? cost->usd_per_million_tokens : kNone;
}

struct Draws {
  std::vector<double> cost;  // infinite where the service levels are broken
};

Draws Draw(const Contender& contender, const RankingOptions& options) {
  std::mt19937_64 random(Seed(contender.name));
  std::student_t_distribution<double> student(std::max(contender.rate_degrees_of_freedom, 1.0));
  std::uniform_real_distribution<double> uniform;
  Draws draws;
  draws.cost.reserve(kDraws);
  for (int i = 0; i < kDraws; ++i) {
    const double keeps = uniform(random);
    const double error = std::clamp(student(random) * contender.rate_relative_error, -10.0, 10.0);
    draws.cost.push_back(keeps < contender.slo_probability
                             ? Cost(contender, options, std::exp(error))
                             : std::numeric_limits<double>::infinity());
  }
  return draws;
}

void CountWins(const std::vector<std::size_t>& feasible, const std::vector<Draws>& draws,
               std::vector<Standing>& standings) {
  for (std::size_t i = 0; i < kDraws; ++i) {
    double best = std::numeric_limits<double>::infinity();
    std::size_t ties = 0;
    for (std::size_t k = 0; k < feasible.size(); ++k) {
      const double cost = draws[k].cost[i];
      if (cost < best) {
        best = cost;
        ties = 1;
      } else if (cost == best) {
        ++ties;
      }
    }
    if (std::isinf(best)) continue;
    for (std::size_t k = 0; k < feasible.size(); ++k) {
      if (draws[k].cost[i] == best) {
        standings[feasible[k]].p_best += 1.0 / static_cast<double>(ties) / kDraws;
      }
    }
  }
}

double HalfWidth(const Contender& contender) {
  return contender.rate_relative_error *
         StudentHalfWidth(kIntervalConfidence, std::max(contender.rate_degrees_of_freedom, 1.0));
}

void Compare(const Contender& first, const Contender& second, Ranking& ranking) {
  const double cheap = ranking.standings[*ranking.first].usd_per_million_tokens;
  const double dear = ranking.standings[*ranking.second].usd_per_million_tokens;
  if (!(dear > 0)) return;
  ranking.difference = (dear - cheap) / dear;
  const double half = std::hypot(HalfWidth(first), HalfWidth(second));
  ranking.difference_low = 1 - cheap / dear * std::exp(half);
  ranking.difference_high = 1 - cheap / dear * std::exp(-half);
  // The error falls with the square root of what is measured.
  const double log_ratio = std::log(dear / cheap);
  if (log_ratio > 0) ranking.measurement_factor = std::pow(half / log_ratio, 2);
}

// What others took of the machine, a candidate could have used: its cost can have been too high by
// at most that share. True when that would bring another candidate level with the first.
bool OthersCouldHaveDecided(const std::vector<Contender>& contenders, const Ranking& ranking) {
  const double first = ranking.standings[*ranking.first].usd_per_million_tokens;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    if (i == *ranking.first) continue;
    const double cost = ranking.standings[i].usd_per_million_tokens;  // NaN when out
    if (cost * (1 - contenders[i].others_share) <= first) return true;
  }
  return false;
}

}  // namespace

const char* ToString(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPick:
      return "pick";
    case Verdict::kNoneFeasible:
      return "none_feasible";
    case Verdict::kTooClose:
      return "too_close";
    case Verdict::kEqual:
      return "equal";
    case Verdict::kLevelsUnsure:
      return "levels_unsure";
    case Verdict::kDisturbed:
      return "disturbed";
  }
  return "";
}

Ranking Rank(const std::vector<Contender>& contenders, const RankingOptions& options) {
  Ranking ranking;
  ranking.standings.resize(contenders.size());
  std::vector<std::size_t> feasible;
  std::vector<Draws> draws;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    Standing& standing = ranking.standings[i];
    const Contender& contender = contenders[i];
    standing.usd_per_million_tokens = standing.low = standing.high = kNone;
    const double cost = contender.feasible ? Cost(contender, options, 1) : kNone;
    if (std::isnan(cost)) continue;
    standing.usd_per_million_tokens = cost;
    const double half = std::min(HalfWidth(contender), 10.0);
    standing.low = Cost(contender, options, std::exp(half));
    standing.high = Cost(contender, options, std::exp(-half));
    feasible.push_back(i);
    draws.push_back(Draw(contender, options));
  }
  CountWins(feasible, draws, ranking.standings);

  ranking.order = feasible;
  // Equal costs are ordered by name, so that the plan's order decides nothing.
  std::sort(ranking.order.begin(), ranking.order.end(), [&](std::size_t a, std::size_t b) {
    const double cost_a = ranking.standings[a].usd_per_million_tokens;
    const double cost_b = ranking.standings[b].usd_per_million_tokens;
    return cost_a != cost_b ? cost_a < cost_b : contenders[a].name < contenders[b].name;
  });
  if (ranking.order.size() > 0) ranking.first = ranking.order[0];
  if (ranking.order.size() > 1) ranking.second = ranking.order[1];
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    if (std::find(feasible.begin(), feasible.end(), i) == feasible.end()) {
      ranking.order.push_back(i);
    }
  }

  if (!ranking.first) return ranking;
  const std::size_t first = *ranking.first;
  if (ranking.second) Compare(contenders[first], contenders[*ranking.second], ranking);
  if (contenders[first].slo_probability < options.confidence) {
    ranking.verdict = Verdict::kLevelsUnsure;
  } else if (ranking.second && ranking.difference < options.min_difference) {
    ranking.verdict = Verdict::kEqual;
  } else if (ranking.standings[first].p_best < options.confidence) {
    ranking.verdict = Verdict::kTooClose;
  } else if (OthersCouldHaveDecided(contenders, ranking)) {
    ranking.verdict = Verdict::kDisturbed;
  } else {
    ranking.verdict = Verdict::kPick;
    ranking.pick = first;
  }
  return ranking;
}

}  // namespace tare::advise
