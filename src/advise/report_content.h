// What the report says, in one language but in no format yet: HTML and Markdown both write this.
// Every figure carries its tag: measured, simulated, computed, claimed or assumed.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "advise/report.h"
#include "advise/words.h"

namespace tare::advise {

struct Cell {
  std::string text;
  std::string tag;   // empty: no figure
  std::string note;  // small print under the figure
  bool best = false;
  bool bad = false;  // breaks a service level
};

struct TableRow {
  std::string label;
  std::string note;  // "limit 2 s"
  std::vector<Cell> cells;
};

struct Table {
  std::vector<std::string> heads;  // one a cell
  std::vector<TableRow> rows;
};

struct Evidence {
  std::string id;  // "int4.8.e2e_p90": stable
  std::string candidate;
  std::string what;
  double value = 0;
  std::string text;
  std::string unit;
  std::string tag;
  std::string source;  // run ids, file, formula
};

// A published claim and what became of it.
struct CheckedClaim {
  std::string candidate, says, where, verdict, arithmetic;
  bool bad = false;  // impossible or inconsistent
};

struct KeyFigure {
  std::string label, text, tag, note;
};

struct ReportContent {
  std::string title, meta;
  std::string headline;
  std::vector<std::string> why;
  std::vector<KeyFigure> key_figures;
  std::vector<std::string> keep_up;  // command lines
  Table comparison;
  std::vector<std::string> would_change;
  std::vector<std::string> routing;  // a sentence a tier
  std::vector<std::string> cautions;
  std::vector<Evidence> evidence;
  std::vector<CheckedClaim> claims;
  std::vector<std::pair<std::string, std::string>> inputs;
  std::vector<std::string> reproduce;  // command lines
  std::vector<std::pair<std::string, std::string>> definitions;
};

ReportContent ContentOf(const Report& report, const Words& words);

// "90th percentile of the time to first token".
std::string NameOf(const LatencyLimit& limit, const Words& words);
std::string NameOf(Metric metric, const Words& words);
std::string LevelText(const LoadPlan& load, double level, const Words& words);

}  // namespace tare::advise
