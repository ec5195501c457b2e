// How far a measured figure can be trusted: the standard error of a throughput from the blocks of
// its runs, and the probability that a latency limit holds. Pure functions.
//
// docs/ADVISE.md, "Uncertainty", derives both and says what they do not cover.
#pragma once

#include <cstdint>
#include <vector>

namespace tare::advise {

// A rate (tokens/s) estimated from rounds, each cut into blocks of equal time.
struct RateEstimate {
  double mean = 0;
  // Of the mean, relative; the within-round and the between-round variance added.
  double relative_error = 0;
  double degrees_of_freedom = 1;  // Welch-Satterthwaite
  int rounds = 0;
};

// `rounds[r][b]` is the rate in block b of round r. Rounds without blocks are left out; one block
// in all says nothing about its spread and gives a relative error of 1.
RateEstimate EstimateRate(const std::vector<std::vector<double>>& rounds);

// The probability, given that `within` of `total` answers kept a limit, that the true share of
// answers that keep it is at least `share`: the upper tail of Beta(within + 1, total - within + 1),
// which is the posterior under a uniform prior. Equals P(Binomial(total + 1, share) <= within).
double ProbabilityShareAtLeast(std::uint64_t within, std::uint64_t total, double share);

// Two-sided quantile of Student's t: the half width, in standard errors, of an interval that holds
// the mean with probability `confidence`.
double StudentHalfWidth(double confidence, double degrees_of_freedom);

// The percentile by linear interpolation between closest ranks; `sorted` is ascending, not empty.
double PercentileOf(const std::vector<double>& sorted, double share);

}  // namespace tare::advise
