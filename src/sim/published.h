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

// Of |predicted ÷ measured − 1| over points.
struct ErrorFigures {
  int points = 0;
  double median = 0, mean = 0;
  double worst = 0;        // signed: −0.5 is half of what was measured
  std::string worst_what;  // "qwen3-32b, 424 at once"
};
struct ErrorPair {
  ErrorFigures output_token, first_token;
};

struct PublishedError {
  ErrorPair fitted;    // of the efficiency given, where it was fitted
  ErrorPair left_out;  // the same points, each device predicted by a fit to the others
  ErrorPair other;     // points that are never fitted
  struct OfDevice {
    std::string device;
    bool fitted = false;  // else its points are never fitted
    ErrorPair error;      // without it in the fit
  };
  std::vector<OfDevice> devices;  // by name
  // Beside the points: with the efficiency given, and by a fit that does not know the device.
  std::vector<PublishedPrediction> predictions, without_device;
};
// Fits once for every device that is fitted: a minute or two of processor time.
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
