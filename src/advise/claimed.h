// Candidates known from a vendor's figures only: held against what the devices can do at most, and
// taken on, tagged "claimed", when nothing forbids them.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "advise/plan.h"
#include "base/result.h"
#include "econ/catalog.h"
#include "econ/claims_report.h"
#include "store/run_record.h"

namespace tare::advise {

// The weights in the memory, the rate under the roofline of memory and compute, the first token
// after the prompt's multiplications (docs/CLAIMS.md). Fails on names the catalogue does not have.
Result<std::vector<econ::JudgedClaim>> JudgeFigures(const Candidate& candidate,
                                                    const econ::Catalog& catalog);

// The arithmetic of the first impossible one; empty when there is none.
std::string WhyImpossible(const std::vector<econ::JudgedClaim>& claims);

// The figures as a run record, so that they are judged like others; what was not published is not a
// number. The error they are taken to have is in it as a simulation's is.
store::RunRecord RecordOfFigures(const Candidate& candidate);

// The level of load the record belongs to: users at once, or requests a second.
double LevelOfFigures(const ClaimedFigures& claimed, const LoadPlan& load);

}  // namespace tare::advise
