// Runs a rate search against a server: every probe is a load test with a record of its own, and the
// answer names the records it rests on.
//
// Blocking, up to the search's time budget (the first probe is always made). An error is returned
// only when not even the first probe could take place; a server that stops answering later ends the
// search with what was found. Thread safety: one search at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "load/rate_search.h"
#include "load/runner.h"

namespace tare::load {

struct SearchProbe {
  double rate = 0;
  int attempt = 1;
  std::string run;                                // id of its record; empty when it was not kept
  ProbeOutcome outcome = ProbeOutcome::kUnclear;  // of this probe alone
  std::string invalid;                            // why it is no measurement
  std::vector<LevelShare> shares;
  double requests_per_s = 0, ttft_p50 = 0, ttft_p99 = 0, tpot_p50 = 0;  // p…: seconds or NaN
  double seconds = 0;                                                   // it took, all told
};

struct SearchResult {
  SearchSpec spec;
  nlohmann::json levels, target, arrival;
  SearchAnswer answer;
  std::vector<SearchProbe> probes;  // as they were made
  double seconds = 0;
};

// Why a record cannot be evidence about the server, or empty. Failed requests are evidence: they
// are misses.
std::string NoEvidence(const store::RunRecord& record);

struct SearchHooks {
  // Runs one probe; RunLoad when empty.
  std::function<Result<store::RunRecord>(const LoadOptions&)> run;
  // Called with each record, to keep it; returns its id.
  std::function<Result<std::string>(const store::RunRecord&)> keep;
  std::function<void(const SearchProbe&)> say;  // after each probe
  std::function<bool()> cancelled;
};

// `options` describe the load but for its rate; a closed loop becomes Poisson arrivals.
Result<SearchResult> SearchRate(LoadOptions options, const SearchSpec& spec,
                                const SearchHooks& hooks);

std::string SearchTable(const SearchResult& result);
nlohmann::json SearchJson(const SearchResult& result);  // schema tare.rate_search/1
std::string SearchPage(const SearchResult& result);     // self-contained HTML

}  // namespace tare::load
