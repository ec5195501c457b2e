// The return on investment by quarter (SPEC row EC5) as a case: options with uncertain inputs in;
// net present value, tornado, Monte Carlo, growth-by-replacement matrix out.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "econ/cases.h"

namespace tare::econ {

// Mistakes are recorded in the value's document.
nlohmann::json RoiCase(const config::Value& root, const Catalog& catalog,
                       const CaseOptions& options);

// The answer for a terminal, and as a self-contained page.
std::string RoiText(const nlohmann::json& answer);
std::string RoiHtml(const nlohmann::json& answer);

}  // namespace tare::econ
