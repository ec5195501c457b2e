// Random numbers that are the same everywhere: the standard fixes mt19937_64's output but not the
// distributions', so those a schedule or a prompt depends on are written out here. A seed printed
// with a run rebuilds that run on any machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>

namespace tare::load {

// A well-mixed seed for the stream `index` of `seed` (SplitMix64's finalizer).
inline std::uint64_t StreamSeed(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  // In (0, 1).
  double Uniform() { return (static_cast<double>(engine_() >> 11) + 0.5) * 0x1.0p-53; }
  // In [0, n), n > 0. The bias of the remainder is below 2^-40 for every n used here.
  std::uint64_t Below(std::uint64_t n) { return engine_() % n; }
  double Exponential() { return -std::log(Uniform()); }
  double Normal() {  // Box and Muller
    return std::sqrt(-2 * std::log(Uniform())) * std::cos(2 * 3.14159265358979323846 * Uniform());
  }
  // Gamma of the given shape and scale 1 (Marsaglia and Tsang 2000).
  double Gamma(double shape) {
    if (shape < 1) return Gamma(shape + 1) * std::pow(Uniform(), 1 / shape);
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = Normal();
      const double v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(Uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tare::load
