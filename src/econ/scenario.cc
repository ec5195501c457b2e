#include "econ/scenario.h"

namespace tare::econ {

Model MakeModel(const Scenario& scenario) {
  return [&scenario](std::span<const double> inputs, std::span<double> outcomes) {
    TrafficValues traffic = scenario.traffic;
    for (const auto& binding : scenario.traffic_bindings) {
      traffic.*binding.member = inputs[binding.input];
    }
    Horizon horizon = scenario.horizon;
    if (scenario.rate_input) horizon.discounting.rate_per_year = inputs[*scenario.rate_input];
    // Bindings are in the order of the options.
    auto binding = scenario.option_bindings.begin();
    for (std::size_t option = 0; option < scenario.options.size(); ++option) {
      OptionValues values = scenario.options[option].values;
      for (; binding != scenario.option_bindings.end() && binding->option == option; ++binding) {
        values.*binding->member = inputs[binding->input];
      }
      outcomes[option] = PresentCost(values, traffic, scenario.shape, horizon);
    }
  };
}

}  // namespace tare::econ
