// Quantities in configuration files: a Value's text read in a unit, mistakes recorded in the
// document (see base/config.h).
#pragma once

#include <string_view>

#include "base/config.h"
#include "econ/quantity.h"

namespace tare::econ {

// Required; "MONEY" in `unit` stands for `currency`. Returns 1 after a mistake, so that dividing
// by it is harmless.
double ReadQuantity(const config::Value& value, std::string_view unit,
                    std::string_view currency = {});
double ReadQuantityOr(const config::Value& value, std::string_view unit, double fallback,
                      std::string_view currency = {});

}  // namespace tare::econ
