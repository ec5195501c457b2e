#include "econ/calibration.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace tare::econ {
namespace {

constexpr double kFirstTokenWeight = 0.5;

struct Parameter {
  double Efficiency::*member;
  double low, high;
  double start_step;
};
constexpr Parameter kParameters[] = {
    {&Efficiency::bandwidth, 0.2, 1.0, 0.1},
    {&Efficiency::compute, 0.05, 1.0, 0.1},
    {&Efficiency::seconds_per_layer, 0, 500e-6, 40e-6},
    {&Efficiency::seconds_per_collective, 0, 100e-6, 5e-6},
    {&Efficiency::prefill_seconds_per_expert_layer, 0, 10e-3, 0.5e-3},
    // No sequence waits for more than every other prompt.
    {&Efficiency::first_token_wait, 0, 1, 0.25},
    // Receiving, tokenising and scheduling take less; what a fit would add is another server's
    // queue.
    {&Efficiency::first_token_seconds, 0, 0.15, 0.05},
};

// Mean over groups of the mean error: of output tokens in the logarithm, of first tokens relative
// to the measured one, because their measurements scatter by a factor of two for one and the same
// set-up and the logarithm would follow the largest.
double Loss(std::span<const MeasuredPoint> points, const Efficiency& efficiency) {
  std::map<std::string_view, std::pair<double, double>> groups;  // weighted error, weight
  for (const MeasuredPoint& point : points) {
    const ServingPrediction p = Predict(point.deployment, point.load, efficiency);
    auto& [error, weight] = groups[point.group];
    error += std::abs(std::log(p.seconds_per_output_token / point.seconds_per_output_token));
    weight += 1;
    if (point.seconds_to_first_token) {
      error += kFirstTokenWeight *
               std::abs(p.seconds_to_first_token / *point.seconds_to_first_token - 1);
      weight += kFirstTokenWeight;
    }
  }
  double sum = 0;
  for (const auto& [group, value] : groups) sum += value.first / value.second;
  return sum / static_cast<double>(groups.size());
}

Efficiency Moved(Efficiency from, const Parameter& parameter, double steps) {
  from.*parameter.member = std::clamp(from.*parameter.member + steps * parameter.start_step,
                                      parameter.low, parameter.high);
  return from;
}

// Tries two parameters at once, which gets along the valleys of factors that trade against each
// other (time a layer against time a collective); true at the first move that is kept.
template <typename KeepIfBetter>
bool MoveAPair(const Efficiency& best, double scale, KeepIfBetter keep_if_better) {
  for (const Parameter& first : kParameters) {
    for (const Parameter& second : kParameters) {
      if (&second <= &first) continue;
      for (double a : {-scale, scale}) {
        for (double b : {-scale, scale}) {
          if (keep_if_better(Moved(Moved(best, first, a), second, b))) return true;
        }
      }
    }
  }
  return false;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

struct Errors {
  std::vector<double> output, first;

  void Add(const MeasuredPoint& point, const Efficiency& efficiency) {
    const ServingPrediction p = Predict(point.deployment, point.load, efficiency);
    output.push_back(std::abs(p.seconds_per_output_token / point.seconds_per_output_token - 1));
    if (point.seconds_to_first_token) {
      first.push_back(std::abs(p.seconds_to_first_token / *point.seconds_to_first_token - 1));
    }
  }
  PredictionError Summary() const {
    return {Mean(output),
            Median(output),
            Mean(first),
            Median(first),
            static_cast<int>(output.size()),
            static_cast<int>(first.size())};
  }
};

}  // namespace

Efficiency FitEfficiency(std::span<const MeasuredPoint> points) {
  Efficiency best = kPlainRoofline;
  best.seconds_per_layer = 40e-6;
  best.prefill_seconds_per_expert_layer = 2e-3;
  best.prefill_interference = 1;
  best.first_token_wait = 0.5;
  best.first_token_seconds = 0.05;
  double best_loss = Loss(points, best);
  const auto keep_if_better = [&](const Efficiency& tried) {
    const double loss = Loss(points, tried);
    if (loss >= best_loss - 1e-9) return false;
    best = tried;
    best_loss = loss;
    return true;
  };
  for (double scale = 2; scale > 1e-3; scale *= 0.5) {
    for (bool improved = true; improved;) {
      improved = false;
      for (const Parameter& parameter : kParameters) {
        for (double direction : {-1.0, 1.0}) {
          improved |= keep_if_better(Moved(best, parameter, direction * scale));
        }
      }
      if (!improved) improved = MoveAPair(best, scale, keep_if_better);
    }
  }
  return best;
}

PredictionError ErrorOf(std::span<const MeasuredPoint> points, const Efficiency& efficiency) {
  Errors errors;
  for (const MeasuredPoint& point : points) errors.Add(point, efficiency);
  return errors.Summary();
}

PredictionError HeldOutError(std::span<const MeasuredPoint> points, std::string_view source) {
  std::set<std::string> groups;
  for (const MeasuredPoint& point : points) groups.insert(point.group);
  Errors errors;
  for (const std::string& held_out : groups) {
    std::vector<MeasuredPoint> others;
    for (const MeasuredPoint& point : points) {
      if (point.group != held_out) others.push_back(point);
    }
    if (others.empty()) continue;
    const Efficiency efficiency = FitEfficiency(others);
    for (const MeasuredPoint& point : points) {
      if (point.group != held_out || (!source.empty() && point.source != source)) continue;
      errors.Add(point, efficiency);
    }
  }
  return errors.Summary();
}

// Printed by bench/roofline_calibration on 2026-11-30; the fit does not depend on the CPU.
Efficiency CalibratedEfficiency() {
  return {.bandwidth = 0.771,
          .compute = 0.539,
          .seconds_per_layer = 100.0e-6,
          .seconds_per_collective = 4.2e-6,
          .prefill_seconds_per_expert_layer = 2.49e-3,
          .prefill_interference = 1,
          .first_token_wait = 0.498,
          .first_token_seconds = 6.3e-3};
}

PredictionError CalibratedHeldOutError() {
  return {.output_token_mean = 0.183,
          .output_token_median = 0.150,
          .first_token_mean = 0.354,
          .first_token_median = 0.277,
          .output_tokens = 45,
          .first_tokens = 30};
}

PredictionError PlainRooflineError() {
  return {.output_token_mean = 0.391,
          .output_token_median = 0.409,
          .first_token_mean = 0.681,
          .first_token_median = 0.801,
          .output_tokens = 45,
          .first_tokens = 30};
}

}  // namespace tare::econ
