// A scenario: traffic, options and the uncertain inputs behind them, ready to be evaluated at any
// values of those inputs. econ/scenario_reader.h makes one from a file.
//
// Ownership: a plain value; MakeModel's closure refers to the scenario, which must outlive it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "econ/capacity.h"
#include "econ/tco.h"
#include "econ/uncertainty.h"

namespace tare::econ {

struct ScenarioOption {
  std::string name;
  OptionValues values;
  std::optional<Capacity> measured;  // when the capacity came from a load curve
};

struct Scenario {
  std::string name;
  std::string currency;
  Horizon horizon;
  DemandShape shape;
  TrafficValues traffic;
  std::vector<ScenarioOption> options;

  // Every number the file gave, with its unit, source and date; the uncertain ones are bound to
  // the members they feed.
  std::vector<UncertainInput> inputs;
  std::vector<std::string> units;  // beside inputs
  struct OptionBinding {
    std::size_t input;
    std::size_t option;
    double OptionValues::*member;
  };
  struct TrafficBinding {
    std::size_t input;
    double TrafficValues::*member;
  };
  std::vector<OptionBinding> option_bindings;
  std::vector<TrafficBinding> traffic_bindings;
  std::optional<std::size_t> rate_input;
};

// Net present cost of every option at given values of the inputs.
Model MakeModel(const Scenario& scenario);

}  // namespace tare::econ
