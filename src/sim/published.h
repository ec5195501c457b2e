// Simulations of servers that others have measured: what the fitted efficiency (efficiency.h) comes
// from, and how far off it is. The measurements are econ/measured_points.h's: served models on
// data-centre GPUs, llama-7b under 1 to 64 users on small ones, and a log of single requests.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "econ/calibration.h"
#include "econ/catalog.h"
#include "sim/efficiency.h"

namespace tare::sim {

struct PublishedPrediction {
  double seconds_per_output_token = 0;
  double seconds_to_first_token = 0;  // mean; 0 where the measurement has none
};

// The point's load (closed, with its lengths) on the engine's scheduler. Points whose prompts are
// computed elsewhere, or that were taken while nothing was prefilled, are steps of their batch.
PublishedPrediction PredictPublished(const econ::MeasuredPoint& point,
                                     const ServingEfficiency& efficiency);

// Whether a point is fitted. Those of llama-7b under 1 to 128 users are not: that server, of 2023,
// spends about 0.8 ms of host time on every sequence of a step, which is no property of devices.
// They show what the error is on a server unlike those that were fitted.
bool InFit(const econ::MeasuredPoint& point);

// Minimises the mean absolute log error, a device counting as the square root of its points, first
// tokens half as much as output tokens; coordinate search from `start` with steps from `scale`
// down. Deterministic.
ServingEfficiency FitPublished(std::span<const econ::MeasuredPoint> points,
                               const ServingEfficiency& start, double scale);

struct PublishedError {
  econ::PredictionError fitted;                  // of the efficiency given
  econ::PredictionError left_out;                // each device predicted by a fit to the others
  econ::PredictionError other;                   // points that are never fitted
  std::vector<PublishedPrediction> predictions;  // beside the points
};
PublishedError ErrorOfPublished(std::span<const econ::MeasuredPoint> points,
                                const ServingEfficiency& efficiency,
                                const std::function<void(const std::string&)>& progress);

// 300 real requests to vLLM on one device, replayed with their own times and lengths.
struct ReplayError {
  struct Metric {
    std::string name;
    double measured = 0, simulated = 0;
    double error() const { return simulated / measured - 1; }
  };
  std::vector<Metric> metrics;
};
Result<ReplayError> ReplayRequests(const std::filesystem::path& folder,
                                   const econ::Catalog& catalog,
                                   const ServingEfficiency& efficiency);

}  // namespace tare::sim
