#include "advise/uncertainty.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace tare::advise {
namespace {

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double SampleVariance(const std::vector<double>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return sum / static_cast<double>(values.size() - 1);
}

}  // namespace

RateEstimate EstimateRate(const std::vector<std::vector<double>>& rounds) {
  RateEstimate estimate;
  std::vector<double> means;
  double within = 0;  // sum over rounds of the variance of the round's mean
  double within_freedom = 0;
  for (const std::vector<double>& blocks : rounds) {
    if (blocks.empty()) continue;
    means.push_back(Mean(blocks));
    if (blocks.size() > 1) {
      within += SampleVariance(blocks) / static_cast<double>(blocks.size());
      within_freedom += static_cast<double>(blocks.size() - 1);
    }
  }
  estimate.rounds = static_cast<int>(means.size());
  if (means.empty()) return estimate;
  estimate.mean = Mean(means);
  const auto count = static_cast<double>(means.size());
  within /= count * count;
  const double between = means.size() > 1 ? SampleVariance(means) / count : 0;
  const double variance = within + between;
  if (estimate.mean <= 0 || (within_freedom <= 0 && means.size() < 2)) {
    estimate.relative_error = 1;
    return estimate;
  }
  estimate.relative_error = std::sqrt(variance) / estimate.mean;
  double denominator = 0;
  if (within_freedom > 0) denominator += within * within / within_freedom;
  if (means.size() > 1) denominator += between * between / (count - 1);
  estimate.degrees_of_freedom =
      denominator > 0 ? std::clamp(variance * variance / denominator, 1.0, 1e6) : 1e6;
  return estimate;
}

double ProbabilityShareAtLeast(std::uint64_t within, std::uint64_t total, double share) {
  TARE_CHECK(within <= total && share > 0 && share < 1);
  // lgamma keeps the terms in range for any count.
  const auto n = static_cast<double>(total + 1);
  double sum = 0;
  for (std::uint64_t k = 0; k <= within; ++k) {
    const auto x = static_cast<double>(k);
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) +
                    x * std::log(share) + (n - x) * std::log1p(-share));
  }
  return std::min(sum, 1.0);
}

double StudentHalfWidth(double confidence, double degrees_of_freedom) {
  TARE_CHECK(confidence > 0 && confidence < 1 && degrees_of_freedom > 0);
  const boost::math::students_t distribution(degrees_of_freedom);
  return boost::math::quantile(distribution, 0.5 + confidence / 2);
}

double PercentileOf(const std::vector<double>& sorted, double share) {
  TARE_CHECK(!sorted.empty() && share >= 0 && share <= 1);
  const double rank = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(rank);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (rank - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace tare::advise
