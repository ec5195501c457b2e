// Fitting the roofline's efficiency factors to measured servers, and the error on servers that
// were not fitted. bench/roofline_calibration.cc runs it; the result lives in CalibratedEfficiency.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "econ/roofline.h"

namespace tare::econ {

struct MeasuredPoint {
  std::string source;  // the data set
  std::string group;   // points of one device: held out together
  Deployment deployment;
  ServingLoad load;
  double seconds_per_output_token = 0;
  std::optional<double> seconds_to_first_token;
};

// Minimises the mean error, every group counting the same, first tokens half as much as output
// tokens. A search along single factors and pairs of them from the plain roofline: deterministic.
Efficiency FitEfficiency(std::span<const MeasuredPoint> points);

struct PredictionError {
  double output_token_mean = 0, output_token_median = 0;  // |predicted / measured - 1|
  double first_token_mean = 0, first_token_median = 0;
  int output_tokens = 0, first_tokens = 0;  // points
};
PredictionError ErrorOf(std::span<const MeasuredPoint> points, const Efficiency& efficiency);

// Each group predicted with factors fitted to all the others; of one source when it is given.
PredictionError HeldOutError(std::span<const MeasuredPoint> points, std::string_view source = {});

// The factors used by predictions, and the error that goes with them (fractions, held out), as
// printed by bench/roofline_calibration; see docs/ECONOMICS.md for the data.
Efficiency CalibratedEfficiency();
PredictionError CalibratedHeldOutError();
// The plain roofline's error on the same points.
PredictionError PlainRooflineError();

}  // namespace tare::econ
