#include "econ/uncertainty.h"

#include <algorithm>
#include <cmath>

#include "econ/counter_random.h"

namespace tare::econ {
namespace {

constexpr double kLowQuantile = 0.1;
constexpr double kHighQuantile = 0.9;
constexpr int kBins = 60;

std::vector<double> Estimates(const std::vector<UncertainInput>& inputs) {
  std::vector<double> values;
  values.reserve(inputs.size());
  for (const UncertainInput& input : inputs) values.push_back(input.value);
  return values;
}

double OutcomeAt(const Model& model, std::span<const double> values, std::size_t options,
                 std::size_t option) {
  std::vector<double> outcomes(options);
  model(values, outcomes);
  return outcomes[option];
}

// The value with a share `quantile` of `values` below it; reorders them.
double SelectQuantile(std::vector<double>& values, double quantile) {
  const auto at = static_cast<std::ptrdiff_t>(quantile * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

OutcomeSummary Summarise(std::vector<double> values) {
  OutcomeSummary summary;
  // Sums in the order of the draws: the same on any number of threads.
  const double count = static_cast<double>(values.size());
  double sum = 0;
  for (double value : values) sum += value;
  summary.mean = sum / count;
  double squares = 0;
  for (double value : values) squares += (value - summary.mean) * (value - summary.mean);
  summary.deviation = std::sqrt(squares / std::max(1.0, count - 1));
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  summary.low = *low;
  summary.high = *high;
  summary.histogram_low = SelectQuantile(values, 0.005);
  summary.histogram_high = SelectQuantile(values, 0.995);
  summary.p10 = SelectQuantile(values, 0.1);
  summary.p50 = SelectQuantile(values, 0.5);
  summary.p90 = SelectQuantile(values, 0.9);
  const double width = summary.histogram_high - summary.histogram_low;
  if (width > 0) {
    summary.histogram.assign(kBins, 0);
    for (double value : values) {
      const double bin = (value - summary.histogram_low) / width * kBins;
      if (bin >= 0 && bin < kBins) ++summary.histogram[static_cast<std::size_t>(bin)];
    }
  }
  return summary;
}

}  // namespace

std::vector<TornadoBar> Tornado(const Model& model, const std::vector<UncertainInput>& inputs,
                                std::size_t options, std::size_t option) {
  std::vector<double> values = Estimates(inputs);
  std::vector<TornadoBar> bars;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].uncertain()) continue;
    TornadoBar bar;
    bar.input = i;
    bar.input_low = Quantile(inputs[i].distribution, kLowQuantile);
    bar.input_high = Quantile(inputs[i].distribution, kHighQuantile);
    values[i] = bar.input_low;
    bar.outcome_low = OutcomeAt(model, values, options, option);
    values[i] = bar.input_high;
    bar.outcome_high = OutcomeAt(model, values, options, option);
    values[i] = inputs[i].value;
    bars.push_back(bar);
  }
  std::stable_sort(bars.begin(), bars.end(),
                   [](const TornadoBar& a, const TornadoBar& b) { return a.swing() > b.swing(); });
  return bars;
}

MonteCarloResult MonteCarlo(const Model& model, const std::vector<UncertainInput>& inputs,
                            std::size_t options, std::uint64_t draws, std::uint64_t seed,
                            ThreadPool* pool) {
  std::vector<std::size_t> uncertain;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].uncertain()) uncertain.push_back(i);
  }
  const std::vector<double> estimates = Estimates(inputs);
  std::vector<std::vector<double>> outcomes(options, std::vector<double>(draws));
  auto run = [&](std::size_t begin, std::size_t end) {
    std::vector<double> values = estimates;
    std::vector<double> results(options);
    for (std::size_t draw = begin; draw < end; ++draw) {
      for (std::size_t k = 0; k < uncertain.size(); k += 2) {
        const auto uniforms = UniformPair(seed, draw, static_cast<std::uint32_t>(k / 2));
        values[uncertain[k]] = Quantile(inputs[uncertain[k]].distribution, uniforms[0]);
        if (k + 1 < uncertain.size()) {
          values[uncertain[k + 1]] = Quantile(inputs[uncertain[k + 1]].distribution, uniforms[1]);
        }
      }
      model(values, results);
      for (std::size_t option = 0; option < options; ++option) {
        outcomes[option][draw] = results[option];
      }
    }
  };
  if (pool != nullptr) {
    pool->ParallelFor(draws, 4096, run);
  } else {
    run(0, draws);
  }

  MonteCarloResult result;
  result.draws = draws;
  result.seed = seed;
  result.p_lower.assign(options, std::vector<double>(options, 0));
  result.p_lowest.assign(options, 0);
  const double count = static_cast<double>(draws);
  for (std::size_t draw = 0; draw < draws; ++draw) {
    std::size_t lowest = 0;
    for (std::size_t a = 0; a < options; ++a) {
      if (outcomes[a][draw] < outcomes[lowest][draw]) lowest = a;
      for (std::size_t b = 0; b < options; ++b) {
        if (outcomes[a][draw] < outcomes[b][draw]) result.p_lower[a][b] += 1 / count;
      }
    }
    result.p_lowest[lowest] += 1 / count;
  }
  for (std::vector<double>& values : outcomes)
    result.options.push_back(Summarise(std::move(values)));
  return result;
}

SensitivityMatrix TwoWay(const Model& model, const std::vector<UncertainInput>& inputs,
                         std::size_t options, std::size_t option, std::size_t row_input,
                         std::size_t column_input, int steps) {
  auto range = [&](std::size_t input) {
    std::vector<double> values;
    for (int i = 0; i < steps; ++i) {
      const double share = steps > 1 ? static_cast<double>(i) / (steps - 1) : 0.5;
      values.push_back(Quantile(inputs[input].distribution,
                                kLowQuantile + (kHighQuantile - kLowQuantile) * share));
    }
    return values;
  };
  SensitivityMatrix matrix;
  matrix.rows = range(row_input);
  matrix.columns = range(column_input);
  std::vector<double> values = Estimates(inputs);
  for (double row : matrix.rows) {
    std::vector<double>& cells = matrix.cells.emplace_back();
    for (double column : matrix.columns) {
      values[row_input] = row;
      values[column_input] = column;
      cells.push_back(OutcomeAt(model, values, options, option));
    }
  }
  return matrix;
}

}  // namespace tare::econ
