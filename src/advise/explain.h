// The answer in sentences: what to take, why, and what would change it.
#pragma once

#include <string>
#include <vector>

#include "advise/report.h"
#include "advise/words.h"

namespace tare::advise {

std::string Headline(const Report& report, const Words& words);
std::vector<std::string> Why(const Report& report, const Words& words);
std::vector<std::string> WouldChange(const Report& report, const Words& words);
// Why a candidate is out of the ranking; empty when it is in.
std::string WhyOut(const CandidateResult& result, const Report& report, const Words& words);

}  // namespace tare::advise
