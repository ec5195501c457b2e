#include "advise/advise.h"

#include <algorithm>
#include <chrono>

#include "advise/candidate_command.h"
#include "advise/claimed.h"
#include "advise/report_html.h"
#include "advise/report_json.h"
#include "advise/report_markdown.h"
#include "advise/routing.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/rfc3339.h"
#include "econ/catalog.h"
#include "econ/claims_reader.h"

namespace tare::advise {
namespace {

// What one candidate gave so far.
struct Measured {
  std::vector<std::vector<store::RunRecord>> by_level;  // [level][round]
  std::vector<double> ready_s;
  std::string error;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return PercentileOf(values, 0.5);
}

// Measured or simulated in turns; the others' figures are there from the start.
bool TakesTurns(const Candidate& candidate) {
  return candidate.kind != Candidate::Kind::kStored && candidate.kind != Candidate::Kind::kClaimed;
}

class Session {
 public:
  Session(const Plan& plan, Bench& bench, const AdviseOptions& options)
      : plan_(plan), bench_(bench), options_(options), measured_(plan.candidates.size()) {
    for (Measured& one : measured_) one.by_level.resize(plan.load.levels.size());
    for (const Candidate& candidate : plan.candidates) {
      if (!TakesTurns(candidate)) continue;
      steps_ += plan.load.rounds * static_cast<int>(plan.load.levels.size());
    }
  }

  Status Run() {
    const std::size_t count = plan_.candidates.size();
    for (int round = 0; round < plan_.load.rounds; ++round) {
      for (std::size_t k = 0; k < count; ++k) {
        const std::size_t i = (k + static_cast<std::size_t>(round)) % count;
        if (!TakesTurns(plan_.candidates[i])) continue;
        TARE_RETURN_IF_ERROR(OneRound(i, round));
      }
    }
    return {};
  }

  std::vector<Measured>& measured() { return measured_; }

 private:
  bool Cancelled() const { return options_.cancelled && options_.cancelled(); }

  void Tell(const Candidate& candidate, const std::string& level, const char* phase) {
    if (!options_.on_progress) return;
    options_.on_progress({candidate.name, level, step_, steps_, phase, {}});
  }

  // Fails only when the user gave up; the candidate's own failures stay with it.
  Status OneRound(std::size_t index, int round) {
    const Candidate& candidate = plan_.candidates[index];
    Measured& measured = measured_[index];
    const int steps_after = step_ + static_cast<int>(plan_.load.levels.size());
    if (measured.error.empty()) {
      Tell(candidate, "", candidate.kind == Candidate::Kind::kLocal ? "starting the server" : "");
      const auto ready = bench_.Open(candidate, round);
      if (!ready) {
        measured.error = ready.error().message;
      } else {
        if (*ready) measured.ready_s.push_back(**ready);
        MeasureLevels(candidate, round, measured);
        const Status closed = bench_.Close(candidate);
        if (!closed && measured.error.empty()) measured.error = closed.error().message;
      }
    }
    step_ = steps_after;
    if (Cancelled()) return Fail(ErrorKind::kCancelled, "stopped; nothing was written");
    return {};
  }

  void MeasureLevels(const Candidate& candidate, int round, Measured& measured) {
    for (std::size_t l = 0; l < plan_.load.levels.size(); ++l) {
      if (Cancelled()) return;
      ++step_;
      Tell(candidate, DescribeLevel(plan_.load, plan_.load.levels[l]), "measuring");
      auto record = bench_.Measure(candidate, plan_.load, plan_.load.levels[l], round);
      if (!record) {
        measured.error = record.error().message;
        return;
      }
      measured.by_level[l].push_back(std::move(*record));
    }
  }

  const Plan& plan_;
  Bench& bench_;
  const AdviseOptions& options_;
  std::vector<Measured> measured_;
  int step_ = 0, steps_ = 0;
};

void FillResult(const Plan& plan, Measured& measured, CandidateResult& result) {
  result.error = measured.error;
  // A candidate that failed half way keeps nothing: its rounds are not comparable.
  if (!measured.error.empty()) return;
  for (std::size_t l = 0; l < measured.by_level.size(); ++l) {
    if (measured.by_level[l].empty()) continue;
    result.levels.push_back(Combine(plan.load.levels[l], measured.by_level[l], plan));
  }
  if (!measured.ready_s.empty()) result.ready_s = Median(measured.ready_s);
}

// The level of load a stored run was made under, as its workload tells; 0 when it does not.
double StoredLevel(const store::RunRecord& record) {
  const auto arrival = record.workload.find("arrival");
  if (arrival == record.workload.end() || !arrival->is_object()) return 0;
  for (const char* key : {"users", "rate", "rate_per_s"}) {
    const auto it = arrival->find(key);
    if (it != arrival->end() && it->is_number() && it->get<double>() > 0) return it->get<double>();
  }
  return 0;
}

void FillStored(const Plan& plan, std::vector<store::RunRecord> records, CandidateResult& result) {
  std::map<double, std::vector<store::RunRecord>> by_level;
  for (store::RunRecord& record : records) {
    by_level[StoredLevel(record)].push_back(std::move(record));
  }
  for (const auto& [level, runs] : by_level) result.levels.push_back(Combine(level, runs, plan));
}

Status FillClaimed(const Plan& plan, CandidateResult& result) {
  TARE_TRY(const econ::Catalog catalog, econ::Catalog::BuiltIn());
  auto judged = JudgeFigures(result.candidate, catalog);
  if (!judged) {
    return Context(std::move(judged).error(), "{}:{}: candidate '{}'", plan.source,
                   result.candidate.line, result.candidate.name);
  }
  result.impossible = WhyImpossible(*judged);
  result.claims.insert(result.claims.begin(), judged->begin(), judged->end());
  if (result.impossible.empty()) {
    result.levels.push_back(Combine(LevelOfFigures(result.candidate.claimed, plan.load),
                                    {RecordOfFigures(result.candidate)}, plan));
  }
  return {};
}

Result<std::vector<econ::JudgedClaim>> JudgeClaims(const std::filesystem::path& path) {
  TARE_TRY(const econ::Catalog catalog, econ::Catalog::BuiltIn());
  TARE_TRY(const config::Document document, config::Document::Load(path));
  TARE_TRY(const econ::ClaimsFile claims, econ::ReadClaims(document, catalog));
  return econ::JudgeAll(claims);
}

}  // namespace

Result<Report> Advise(const Plan& plan, const PriceList& prices, Bench& bench,
                      const AdviseOptions& options) {
  const SteadyClock clock;
  const Nanos started = clock.Now();
  Report report;
  report.plan = plan;
  report.tare_version = options.tare_version;
  report.made_at = FormatRfc3339(std::chrono::system_clock::now());
  report.machine = ThisMachine();
  // Everything that can be wrong without measuring is found before measuring.
  for (const Candidate& candidate : plan.candidates) {
    CandidateResult result;
    result.candidate = candidate;
    TARE_TRY(result.price, PriceOf(candidate, plan, prices, report.machine.usable_cores));
    if (candidate.kind == Candidate::Kind::kLocal) {
      std::error_code code;
      if (!std::filesystem::exists(candidate.model, code)) {
        return FailParam("model", "{}:{}: candidate '{}': no file '{}'", plan.source,
                         candidate.line, candidate.name, candidate.model.string());
      }
      result.command = ServeCommand("tare", candidate, 8000);
    }
    if (!candidate.claims.empty()) {
      TARE_TRY(result.claims, JudgeClaims(candidate.claims));
    }
    if (candidate.kind == Candidate::Kind::kStored) {
      TARE_TRY(std::vector<store::RunRecord> records, bench.Stored(candidate));
      FillStored(plan, std::move(records), result);
    }
    if (candidate.kind == Candidate::Kind::kClaimed) {
      TARE_RETURN_IF_ERROR(FillClaimed(plan, result));
    }
    report.candidates.push_back(std::move(result));
  }

  Session session(plan, bench, options);
  TARE_RETURN_IF_ERROR(session.Run());
  for (std::size_t i = 0; i < plan.candidates.size(); ++i) {
    if (!TakesTurns(plan.candidates[i])) continue;
    FillResult(plan, session.measured()[i], report.candidates[i]);
  }
  const bool any = std::any_of(report.candidates.begin(), report.candidates.end(),
                               [](const CandidateResult& one) { return !one.levels.empty(); });
  if (!any) {
    return Fail(ErrorKind::kUnavailable, "no candidate could be measured; '{}': {}",
                report.candidates[0].candidate.name,
                report.candidates[0].impossible.empty() ? report.candidates[0].error
                                                        : report.candidates[0].impossible);
  }
  Judge(report);
  report.took_s = ToSeconds(clock.Now() - started);
  return report;
}

Result<ReportFiles> WriteReport(const Report& report, const Words& words,
                                const std::filesystem::path& dir) {
  std::error_code code;
  std::filesystem::create_directories(dir, code);
  if (code) {
    return Fail(ErrorKind::kIo, "cannot make the folder '{}': {}", dir.string(), code.message());
  }
  const ReportFiles files = {dir / "report.html", dir / "report.md", dir / "report.json",
                             dir / "routing.yaml", dir / "serve.args"};
  TARE_RETURN_IF_ERROR(WriteFileAtomic(files.html, RenderHtml(report, words)));
  TARE_RETURN_IF_ERROR(WriteFileAtomic(files.markdown, RenderMarkdown(report, words)));
  TARE_RETURN_IF_ERROR(WriteFileAtomic(
      files.json,
      ToJson(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
  TARE_RETURN_IF_ERROR(WriteFileAtomic(files.routing, RenderRouting(report)));
  TARE_RETURN_IF_ERROR(WriteFileAtomic(files.serve_args, RenderServeArguments(report)));
  return files;
}

}  // namespace tare::advise
