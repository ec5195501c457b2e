// Energy of a device that is on all the time: idle power plus what the load adds, times the
// building's overhead. Linear interpolation between idle and full load is the usual first-order
// model (Fan, Weber and Barroso, ISCA 2007).
#pragma once

namespace tare::econ {

inline constexpr double kHoursPerYear = 8760;

struct PowerDraw {
  double idle_watts = 0;
  double load_watts = 0;  // at full load, idle included
  double pue = 1;         // power usage effectiveness: facility power / device power
};

// Mean facility watts at `utilisation` in [0, 1].
inline double MeanWatts(const PowerDraw& power, double utilisation) {
  return (power.idle_watts + (power.load_watts - power.idle_watts) * utilisation) * power.pue;
}

inline double EnergyKwhPerYear(const PowerDraw& power, double utilisation) {
  return MeanWatts(power, utilisation) * kHoursPerYear / 1000;
}

}  // namespace tare::econ
