// The published cost formulas as files (SPEC rows EC2-EC9 and EC11): inputs in, answer out as one
// JSON document. Where a file also holds the published result, the answer says whether it follows
// from the formula and gives the right one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "econ/catalog.h"

namespace tare::econ {

// "roi", "complexity", "hidden", "penalty", "maas", "compute", "training", "link".
std::vector<std::string> CaseKinds();

// Of cases with uncertain inputs.
struct CaseOptions {
  std::uint64_t draws = 100'000;
  std::uint64_t seed = 1;
  ThreadPool* pool = nullptr;  // may be null; never changes the result
};

// Answers the case in `document`; its keys depend on the kind (docs/ECONOMICS.md).
Result<nlohmann::json> AnswerCase(std::string_view kind, const config::Document& document,
                                  const Catalog& catalog, const CaseOptions& options = {});

// The answer for a terminal: lists of like objects as tables, notes below them.
std::string CaseText(std::string_view kind, const nlohmann::json& answer);

}  // namespace tare::econ
