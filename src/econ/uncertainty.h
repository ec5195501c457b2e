// What uncertain inputs do to an outcome: tornado, Monte Carlo, two-way sensitivity.
//
// A Model maps values of the inputs (in the order of the list) to one number for each option; it
// must be pure, for it is called from several threads at once. Results depend on the seed only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "econ/distribution.h"

namespace tare::econ {

// outcomes.size() is the number of options.
using Model = std::function<void(std::span<const double> inputs, std::span<double> outcomes)>;

struct TornadoBar {
  std::size_t input = 0;
  double input_low = 0, input_high = 0;      // the input's 10th and 90th percentile
  double outcome_low = 0, outcome_high = 0;  // of the option asked for, at those
  double swing() const {
    return outcome_high > outcome_low ? outcome_high - outcome_low : outcome_low - outcome_high;
  }
};
// Each uncertain input alone at its P10 and P90, the others at their estimates; widest first.
std::vector<TornadoBar> Tornado(const Model& model, const std::vector<UncertainInput>& inputs,
                                std::size_t options, std::size_t option);

struct OutcomeSummary {
  double mean = 0;
  double deviation = 0;
  double p10 = 0, p50 = 0, p90 = 0;
  double low = 0, high = 0;
  std::vector<std::uint32_t> histogram;  // equal bins from P0.5 to P99.5
  double histogram_low = 0, histogram_high = 0;
};

struct MonteCarloResult {
  std::uint64_t draws = 0;
  std::uint64_t seed = 0;
  std::vector<OutcomeSummary> options;
  // p_lower[a][b]: share of draws in which option a's outcome is below option b's.
  std::vector<std::vector<double>> p_lower;
  std::vector<double> p_lowest;  // share of draws in which the option is the lowest
};
// All options of a draw see the same inputs, so that what they share cancels. `pool` may be null.
MonteCarloResult MonteCarlo(const Model& model, const std::vector<UncertainInput>& inputs,
                            std::size_t options, std::uint64_t draws, std::uint64_t seed,
                            ThreadPool* pool);

struct SensitivityMatrix {
  std::vector<double> rows, columns;       // values of the two inputs
  std::vector<std::vector<double>> cells;  // outcome of the option
};
// Two inputs over their ranges (P10 to P90), `steps` values each.
SensitivityMatrix TwoWay(const Model& model, const std::vector<UncertainInput>& inputs,
                         std::size_t options, std::size_t option, std::size_t row_input,
                         std::size_t column_input, int steps);

}  // namespace tare::econ
