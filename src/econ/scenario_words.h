// How a scenario's inputs and break-evens are called in text and pages.
#pragma once

#include <optional>
#include <string>

#include "econ/matrix_report.h"
#include "econ/scenario_report.h"

namespace tare::econ {

// "options[0].energy.price" -> "self-built: energy.price".
std::string InputName(const Scenario& scenario, std::size_t input);
// The value in its unit: "0.12 USD/kWh".
std::string InputText(const Scenario& scenario, std::size_t input, double value);
// "above 266 M tokens/day rented H100 is cheaper".
std::string CrossingText(const Scenario& scenario, const PairAnswer& pair,
                         const Crossing& crossing);

// The two-way matrix with names and units.
MatrixTable MatrixOf(const Scenario& scenario, const ScenarioAnswer& answer);
// Cost of a million tokens when the running instances are busy for `share` of their capacity, read
// off the curve; nothing when the curve does not come near.
std::optional<double> CostAtBusyShare(const std::vector<VolumePoint>& curve, double share);

}  // namespace tare::econ
