#include "econ/scenario_words.h"

#include <fmt/format.h>

#include <cmath>

#include "econ/quantity.h"

namespace tare::econ {

std::string CrossingText(const Scenario& scenario, const PairAnswer& pair,
                         const Crossing& crossing) {
  const std::string& cheaper = scenario.options[crossing.b_cheaper_above ? pair.b : pair.a].name;
  return fmt::format("above {} tokens/day {} is cheaper", FormatSi(crossing.tokens_per_day),
                     cheaper);
}

std::string InputText(const Scenario& scenario, std::size_t input, double value) {
  std::string unit = scenario.units[input];
  if (const std::size_t at = unit.find("MONEY"); at != std::string::npos) {
    unit.replace(at, 5, scenario.currency);
  }
  if (unit == "1/year") return fmt::format("{:.3g} %/year", value * 100);
  return unit == "1" ? FormatNumber(value) : fmt::format("{} {}", FormatNumber(value), unit);
}

std::string InputName(const Scenario& scenario, std::size_t input) {
  const std::string& path = scenario.inputs[input].name;
  for (std::size_t option = 0; option < scenario.options.size(); ++option) {
    const std::string prefix = fmt::format("options[{}].", option);
    if (path.compare(0, prefix.size(), prefix) == 0) {
      return fmt::format("{}: {}", scenario.options[option].name, path.substr(prefix.size()));
    }
  }
  return path;
}

MatrixTable MatrixOf(const Scenario& scenario, const ScenarioAnswer& answer) {
  MatrixTable table;
  if (answer.matrix.rows.empty()) return table;
  table.rows_name = InputName(scenario, answer.matrix_row);
  table.columns_name = InputName(scenario, answer.matrix_column);
  for (double value : answer.matrix.rows) {
    table.rows.push_back(InputText(scenario, answer.matrix_row, value));
  }
  for (double value : answer.matrix.columns) {
    table.columns.push_back(InputText(scenario, answer.matrix_column, value));
  }
  table.cells = answer.matrix.cells;
  return table;
}

std::optional<double> CostAtBusyShare(const std::vector<VolumePoint>& curve, double share) {
  constexpr double kNear = 1.35;  // instances come in whole numbers: shares jump
  const VolumePoint* nearest = nullptr;
  double distance = std::log(kNear);
  for (const VolumePoint& point : curve) {
    if (!(point.busy_share > 0)) continue;
    const double d = std::abs(std::log(point.busy_share / share));
    if (d < distance) {
      distance = d;
      nearest = &point;
    }
  }
  if (nearest == nullptr) return std::nullopt;
  return nearest->per_million;
}

}  // namespace tare::econ
