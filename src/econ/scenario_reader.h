// Scenario files: YAML -> Scenario. docs/ECONOMICS.md documents the format, examples/scenarios has
// files that run.
#pragma once

#include <functional>
#include <string_view>

#include "base/config.h"
#include "base/result.h"
#include "econ/catalog.h"
#include "econ/scenario.h"

namespace tare::econ {

// A number with its unit, and how sure it is:
//   price: 28500 USD
//   price: {value: 28500 USD, source: "offer 4711", date: 2026-05-01, plus_minus: 10 %}
//   price: {value: 28500 USD, triangular: [25000 USD, 28500 USD, 34000 USD]}
// also uniform: [low, high], normal: DEVIATION, log_normal: DEVIATION OF THE LOGARITHM.
// Mistakes are recorded in the document.
UncertainInput ReadUncertain(const config::Value& value, std::string_view unit,
                             std::string_view currency);

// Reads the run record a scenario names; the path is as the file has it. The readers themselves
// touch no file.
using RunLoader = std::function<Result<LoadPoint>(std::string_view path)>;

// Without a loader, a scenario that names run records is refused.
Result<Scenario> ReadScenario(const config::Document& document, const Catalog& catalog,
                              const RunLoader& load_run = {});

}  // namespace tare::econ
