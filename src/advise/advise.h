// `tare advise`: measures every candidate of a plan, judges them, writes the report.
//
// Candidates take turns: round after round, each is started (when local), put under every level of
// load, and stopped; the order turns by one a round, so that slow drift of the machine does not
// always meet the same candidate. One candidate that cannot be measured does not end the others.
// Thread safety: one Advise at a time; it blocks the calling thread, which must live as long (the
// servers it starts die with it).
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "advise/report.h"
#include "advise/words.h"
#include "base/result.h"
#include "load/runner.h"

namespace tare::advise {

struct AdviseProgress {
  std::string candidate, level;
  int step = 0, steps = 0;  // measurements: candidates × levels × rounds
  std::string phase;        // "starting the server", "warming up", "measuring", …
  load::LoadProgress load;
};

// Where the measurements come from; tests bring their own.
class Bench {
 public:
  virtual ~Bench() = default;
  // Makes the candidate answer (starts its server) before the measurements of one round. Returns
  // the seconds it took to become ready; nothing for one that was already there.
  virtual Result<std::optional<double>> Open(const Candidate& candidate, int round) = 0;
  virtual Result<store::RunRecord> Measure(const Candidate& candidate, const LoadPlan& load,
                                           double level, int round) = 0;
  virtual Status Close(const Candidate& candidate) = 0;
  // The records of a stored candidate.
  virtual Result<std::vector<store::RunRecord>> Stored(const Candidate& candidate) = 0;
};

struct AdviseOptions {
  std::string program;  // the tare binary, for local candidates
  std::string tare_version;
  std::function<void(const AdviseProgress&)> on_progress;  // may be empty
  std::function<bool()> cancelled;                         // may be empty
};

// Measures and judges. Fails when prices are missing, when it is cancelled, or when no candidate
// could be measured at all.
Result<Report> Advise(const Plan& plan, const PriceList& prices, Bench& bench,
                      const AdviseOptions& options);

struct ReportFiles {
  std::filesystem::path html, markdown, json, routing, serve_args;
};
// Writes the five files into `dir` (made when missing), each atomically.
Result<ReportFiles> WriteReport(const Report& report, const Words& words,
                                const std::filesystem::path& dir);

}  // namespace tare::advise
