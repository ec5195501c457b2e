// Uncertain inputs: what a figure may be, and how likely. Sampling is by inverting the cumulative
// distribution at a uniform number, so one uniform gives one draw. Pure values.
#pragma once

#include <string>

namespace tare::econ {

enum class Shape { kFixed, kUniform, kTriangular, kNormal, kLogNormal };

struct Distribution {
  Shape shape = Shape::kFixed;
  // kUniform: low, high. kTriangular: low, mode, high. kNormal: mean, deviation.
  // kLogNormal: median, and the deviation of the logarithm.
  double a = 0;
  double b = 0;
  double c = 0;
};

// The value below which a share `u` in (0, 1) of the draws lie.
double Quantile(const Distribution& distribution, double u);

// Standard normal quantile, relative error below 1.2e-9 (rational approximation of
// P. J. Acklam).
double NormalQuantile(double u);

struct UncertainInput {
  std::string name;  // "options[0].energy.price"
  double value = 0;  // the best estimate
  Distribution distribution;
  std::string source;
  std::string date;
  bool uncertain() const { return distribution.shape != Shape::kFixed; }
};

}  // namespace tare::econ
