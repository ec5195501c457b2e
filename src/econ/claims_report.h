// What `tare check` shows: a terminal table, a JSON document, a self-contained HTML page. Pure
// functions from judged claims to text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "econ/claims_reader.h"

namespace tare::econ {

struct JudgedClaim {
  Claim claim;
  Judgement judgement;
};
std::vector<JudgedClaim> JudgeAll(const ClaimsFile& file);

struct VerdictCounts {
  int impossible = 0, inconsistent = 0, unsupported = 0, plausible = 0;
  bool any_false() const { return impossible + inconsistent > 0; }
};
VerdictCounts CountVerdicts(const std::vector<JudgedClaim>& claims);

// `colour` adds terminal colours to the verdicts.
std::string ClaimsTable(const std::vector<JudgedClaim>& claims, bool colour);
nlohmann::json ClaimsJson(const ClaimsFile& file, const std::vector<JudgedClaim>& claims);
std::string ClaimsHtml(const ClaimsFile& file, const std::vector<JudgedClaim>& claims);

}  // namespace tare::econ
