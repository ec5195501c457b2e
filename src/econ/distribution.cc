#include "econ/distribution.h"

#include <cmath>
#include <numbers>

namespace tare::econ {

double NormalQuantile(double u) {
  constexpr double kA[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                           1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double kB[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                           6.680131188771972e+01, -1.328068155288572e+01};
  constexpr double kC[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                           -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double kD[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                           3.754408661907416e+00};
  constexpr double kTail = 0.02425;
  double x = 0;
  if (u < kTail || u > 1 - kTail) {
    const double q = std::sqrt(-2 * std::log(u < kTail ? u : 1 - u));
    x = (((((kC[0] * q + kC[1]) * q + kC[2]) * q + kC[3]) * q + kC[4]) * q + kC[5]) /
        ((((kD[0] * q + kD[1]) * q + kD[2]) * q + kD[3]) * q + 1);
    if (u > kTail) x = -x;
  } else {
    const double q = u - 0.5;
    const double r = q * q;
    x = (((((kA[0] * r + kA[1]) * r + kA[2]) * r + kA[3]) * r + kA[4]) * r + kA[5]) * q /
        (((((kB[0] * r + kB[1]) * r + kB[2]) * r + kB[3]) * r + kB[4]) * r + 1);
  }
  return x;
}

double Quantile(const Distribution& d, double u) {
  switch (d.shape) {
    case Shape::kFixed:
      break;
    case Shape::kUniform:
      return d.a + (d.b - d.a) * u;
    case Shape::kTriangular: {
      const double width = d.c - d.a;
      if (width == 0) return d.b;
      const double at_mode = (d.b - d.a) / width;
      return u < at_mode ? d.a + std::sqrt(u * width * (d.b - d.a))
                         : d.c - std::sqrt((1 - u) * width * (d.c - d.b));
    }
    case Shape::kNormal:
      return d.a + d.b * NormalQuantile(u);
    case Shape::kLogNormal:
      return d.a * std::exp(d.b * NormalQuantile(u));
  }
  return d.a;
}

}  // namespace tare::econ
