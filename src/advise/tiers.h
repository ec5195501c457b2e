// Which candidate takes which tier of traffic, how much of it, and who steps in: what the routing
// plan (routing.h) and the report say about serving the answer.
//
// Interactive traffic, where somebody waits, goes to the lowest end-to-end latency of those that
// keep the service levels, batch work to the lowest cost. A plan with `routing: mix` has machines
// that are all there: every candidate that keeps the levels shares the interactive traffic, and
// those that answer but break a latency limit take the batch work.
//
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "advise/report.h"

namespace tare::advise {

// Indices are those of the report's candidates.
struct Tier {
  std::vector<std::size_t> candidates;  // one, or several that share the tier by their weights
  std::vector<std::size_t> fallbacks;   // tried, in this order, when none of those can answer
  double requests_per_s = 0;            // what the candidates answer together, within the levels
  // How long a request can wait for its turn; one that would wait longer is turned away.
  double wait_s = 0;
  std::string because;  // in English: it goes into a machine-read file
};

struct Tiers {
  std::optional<Tier> interactive, batch;  // both or none
};

Tiers ChooseTiers(const Report& report);

// Requests a second a candidate answers: at its operating level, else the most it was seen to.
double PaceOf(const CandidateResult& result);

}  // namespace tare::advise
