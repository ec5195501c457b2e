#include "econ/scenario_report.h"

namespace tare::econ {
namespace {

// The curve and the search for break-evens reach from a hundredth to a hundred times the demand.
constexpr double kVolumeReach = 100;
constexpr int kCurvePoints = 121;
constexpr int kMatrixSteps = 5;

}  // namespace

ScenarioAnswer Answer(const Scenario& scenario, std::uint64_t draws, std::uint64_t seed,
                      ThreadPool* pool) {
  ScenarioAnswer answer;
  const double volume = scenario.traffic.requests_per_day * scenario.traffic.tokens_per_request();
  const double low = volume / kVolumeReach;
  const double high = volume * kVolumeReach;
  const std::size_t count = scenario.options.size();
  for (const ScenarioOption& option : scenario.options) {
    answer.options.push_back(
        TotalCost(option.values, scenario.traffic, scenario.shape, scenario.horizon));
    answer.curves.push_back(CostCurve(option.values, scenario.traffic, scenario.shape,
                                      scenario.horizon, low, high, kCurvePoints));
  }
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = a + 1; b < count; ++b) {
      answer.pairs.push_back(
          {a, b,
           BreakEvenVolumes(scenario.options[a].values, scenario.options[b].values,
                            scenario.traffic, scenario.shape, scenario.horizon, low, high),
           SwitchFrom(answer.options[a], answer.options[b], scenario.horizon)});
    }
  }
  bool uncertain = false;
  for (const UncertainInput& input : scenario.inputs) uncertain = uncertain || input.uncertain();
  const Model model = MakeModel(scenario);
  for (std::size_t option = 0; option < count; ++option) {
    answer.tornados.push_back(Tornado(model, scenario.inputs, count, option));
  }
  if (!uncertain || draws == 0) return answer;
  answer.monte_carlo = MonteCarlo(model, scenario.inputs, count, draws, seed, pool);
  const std::vector<TornadoBar>& widest = answer.tornados.front();
  if (widest.size() >= 2 && widest[1].swing() > 0) {
    answer.matrix_row = widest[0].input;
    answer.matrix_column = widest[1].input;
    answer.matrix =
        TwoWay(model, scenario.inputs, count, 0, widest[0].input, widest[1].input, kMatrixSteps);
  }
  return answer;
}

}  // namespace tare::econ
