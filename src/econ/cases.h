// The published cost formulas as files (SPEC rows EC2-EC9 and EC11): inputs in, answer out as one
// JSON document. Where a file also holds the published result, the answer says whether it follows
// from the formula and gives the right one.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "econ/catalog.h"

namespace tare::econ {

// "roi", "complexity", "hidden", "penalty", "maas", "compute", "training", "link".
std::vector<std::string> CaseKinds();

// Answers the case in `document`; its keys depend on the kind (docs/ECONOMICS.md).
Result<nlohmann::json> AnswerCase(std::string_view kind, const config::Document& document,
                                  const Catalog& catalog);

// Any answer as indented text for a terminal.
std::string JsonAsText(const nlohmann::json& json);

}  // namespace tare::econ
