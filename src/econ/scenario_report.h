// A scenario's answer and how it is shown: terminal text, JSON, CSV, FOCUS cost rows, an HTML page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "econ/scenario.h"

namespace tare::econ {

struct PairAnswer {
  std::size_t a = 0, b = 0;
  std::vector<Crossing> break_even;
  Switch change;  // choosing b instead of a
};

struct ScenarioAnswer {
  std::vector<TcoResult> options;
  std::vector<std::vector<VolumePoint>> curves;
  std::vector<PairAnswer> pairs;
  std::vector<std::vector<TornadoBar>> tornados;  // of each option's present cost
  MonteCarloResult monte_carlo;                   // of the present costs; no draws without need
  SensitivityMatrix matrix;                       // of the first option, two widest inputs
  std::size_t matrix_row = 0, matrix_column = 0;
};

// `draws` are made only when an input is uncertain. `pool` may be null.
ScenarioAnswer Answer(const Scenario& scenario, std::uint64_t draws, std::uint64_t seed,
                      ThreadPool* pool);

std::string ScenarioText(const Scenario& scenario, const ScenarioAnswer& answer);
nlohmann::json ScenarioJson(const Scenario& scenario, const ScenarioAnswer& answer);
std::string ScenarioHtml(const Scenario& scenario, const ScenarioAnswer& answer);
// One row an option and year.
std::string ScenarioCsv(const Scenario& scenario, const ScenarioAnswer& answer);

// Rows of the FinOps Open Cost and Usage Specification, version 1.0: one a month, option and kind
// of cost. The charge is amortised (hardware as depreciation). `first_year` dates the first month.
std::string ScenarioFocusCsv(const Scenario& scenario, const ScenarioAnswer& answer,
                             int first_year);

}  // namespace tare::econ
