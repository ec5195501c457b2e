// All that one `tare advise` found: the plan, what was measured, the ranking. Plain values; the
// renderers (report_html.h, report_markdown.h, report_json.h, routing.h) only read it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "advise/machine.h"
#include "advise/measurement.h"
#include "advise/plan.h"
#include "advise/prices.h"
#include "advise/ranking.h"
#include "econ/claims_report.h"
#include "econ/serving_cost.h"

namespace tare::advise {

struct CandidateResult {
  Candidate candidate;
  Price price;                       // of one machine
  std::vector<LevelResult> levels;   // in the plan's order; empty when it could not be measured
  std::vector<std::string> command;  // `tare serve` and its flags, of a local one
  std::optional<double> ready_s;     // start of the process to ready, median over rounds
  std::string error;                 // why it could not be measured
  std::vector<econ::JudgedClaim> claims;  // published about it, judged before measuring
  std::string impossible;  // why a claimed candidate's own figures cannot be; empty else

  // The level it is judged at: the one with the highest token rate of those that keep every service
  // level with the plan's confidence, else of those that keep them at all; nothing when none does.
  std::optional<std::size_t> operating;
  // The level shown in the tables: `operating`, else the lightest.
  std::size_t shown = 0;
  bool quality_kept = true;
  std::optional<econ::ServingCost> cost;  // at the level shown
  std::optional<econ::Fleet> fleet;       // for the plan's traffic

  const LevelResult* Shown() const { return levels.empty() ? nullptr : &levels[shown]; }
  bool feasible() const { return operating.has_value() && quality_kept; }
  // "measured", "simulated" or "claimed"; empty without figures.
  std::string tag() const { return levels.empty() ? "" : levels[shown].tag; }
};

struct Report {
  Plan plan;
  std::string made_at;       // RFC 3339
  std::string tare_version;  // "0.1.0"
  double took_s = 0;
  Machine machine;
  std::vector<CandidateResult> candidates;  // in the plan's order
  Ranking ranking;                          // indices are those of `candidates`
};

// Chooses operating levels, costs them and ranks. Pure.
void Judge(Report& report);

}  // namespace tare::advise
