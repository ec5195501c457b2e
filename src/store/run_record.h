// One measurement: what was asked, of whom, under which load, and what happened.
// JSON form: schema "tare.run/1" (docs/LOAD.md); keys are stable, add freely, never rename.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace tare::store {

struct LatencyFigure {  // seconds; a percentile without enough samples is NaN (JSON null)
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
  std::uint64_t n = 0;
  double p999 = std::numeric_limits<double>::quiet_NaN();
  double min = 0, stddev = 0;
  // 95 % confidence interval of a percentile (order statistics), NaN when it was not computed.
  struct Interval {
    double low = std::numeric_limits<double>::quiet_NaN();
    double high = std::numeric_limits<double>::quiet_NaN();
  };
  Interval p50_interval, p90_interval, p95_interval, p99_interval;
};

struct LatencyPair {       // the same latency from two starting points
  LatencyFigure sent;      // from the moment the request left
  LatencyFigure intended;  // from the moment the arrival process wanted it to leave
};

struct ValidityCheck {
  std::string name;
  bool ok = true;
  std::string detail;
};

struct RunSummary {
  std::uint64_t total = 0, ok = 0, failed = 0;
  std::map<std::string, std::uint64_t> errors_by_kind;
  std::uint64_t input_tokens = 0, output_tokens = 0;
  std::uint64_t cached_tokens = 0;  // of input_tokens, as the server told; 0 when it does not tell
  double duration_s = 0;            // the measured window
  double requests_per_s = 0;        // completed requests
  double output_tokens_per_s = 0;
  double goodput_per_s = 0;
  LatencyPair ttft, itl, tpot, e2e;
  double longest_gap_s = 0;          // between two token-bearing chunks of one answer
  std::uint64_t stalls = 0;          // gaps longer than 10 × the median gap
  std::uint64_t peak_rss_bytes = 0;  // of a local server; 0 when unknown
  std::uint64_t peak_pss_bytes = 0;
};

struct RunRecord {
  std::string id;                // time-ordered, unique
  std::string tag = "measured";  // or "simulated"
  std::string name;              // the user's label
  std::string started_at;        // RFC 3339, UTC
  bool valid = true;
  std::vector<ValidityCheck> checks;
  RunSummary summary;
  nlohmann::json workload;  // arrivals, lengths, seed, service levels
  nlohmann::json target;    // url, model, machine, server flags
  nlohmann::json series;    // per-second and per-request data kept with the run (may be null)
};

// Percentiles without enough samples become null, whatever the record holds.
nlohmann::json ToJson(const RunRecord& record);

// Strict: a missing or mistyped key fails with its path ("summary.rates.requests_per_s").
// Unknown keys are left alone: a newer version may have written the document.
Result<RunRecord> RunRecordFromJson(const nlohmann::json& document);

}  // namespace tare::store
