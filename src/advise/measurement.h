// From run records to what is known about a candidate at one level of load: the rounds' requests
// pooled, rates with their error, every service level checked. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "advise/plan.h"
#include "advise/uncertainty.h"
#include "econ/serving_cost.h"
#include "store/run_record.h"

namespace tare::advise {

// The per-request and per-second data a record carries in its series, when it does.
struct RunSamples {
  // Latencies of the answered requests, in seconds, in the order they were sent; per metric.
  // kItl is empty: its gaps are pooled in the record's summary only.
  std::array<std::vector<double>, 4> latency_s;
  std::vector<double> output_tokens;  // received in each second of the measured window
};
RunSamples SamplesOf(const store::RunRecord& record, bool from_intended);

// Where a record's summary has the figures of a metric, and where these have a percentile.
store::LatencyPair store::RunSummary::*PlaceOf(Metric metric);
double store::LatencyFigure::*PlaceOf(Percentile percentile);

// Where LiveBench leaves a run's others_share in the record's target.
inline constexpr const char* kOthersShareKey = "cpu_share_of_others";

struct LimitCheck {
  enum class State {
    kMet,
    kMissed,
    kUnproven,  // too few answers for this percentile
  };
  LatencyLimit limit;
  State state = State::kUnproven;
  double measured_s = 0;  // NaN when unproven
  std::uint64_t samples = 0;
  double probability = 0;  // that the limit holds in truth, given what was seen
};

struct LevelResult {
  double level = 0;  // users, or requests a second
  std::string tag;   // "measured", "simulated" or "claimed"
  std::uint64_t total = 0, ok = 0, failed = 0;
  double error_share = 0;
  econ::ServingRates rates;  // of the candidate as it was measured, mean over rounds
  RateEstimate rate_error;   // of the output tokens a second
  // [metric][percentile], seconds; NaN when there are too few answers. Rounds pooled; where a
  // record keeps no single requests, and for kItl, the worst round.
  std::array<std::array<double, 4>, 4> percentile_s;
  std::array<double, 4> max_s;
  std::array<std::uint64_t, 4> samples;
  std::uint64_t peak_memory_bytes = 0;  // of the server: PSS where known, else RSS; 0: unknown
  double input_tokens_per_request = 0, output_tokens_per_request = 0;
  std::vector<LimitCheck> checks;
  // Simulated: how far off such figures have been found to be (sim::KnownError), mean share.
  // Claimed: how far off they are taken to be.
  double prediction_error = 0, first_token_error = 0;
  std::string error_source;
  bool errors_kept = true;           // the share of failed requests is within the plan's
  std::vector<std::string> invalid;  // why a record is not a valid measurement
  std::vector<std::string> runs;     // ids
  // Part of the machine that other programs took, worst round; nothing when it is not known.
  std::optional<double> others_share;
  double measured_for_s = 0;  // windows added up
  // For the charts.
  std::array<std::vector<double>, 4> sorted_s;        // pooled latencies, ascending
  std::vector<std::vector<double>> tokens_by_second;  // one a round

  bool KeepsLevels() const;       // every limit met, few errors, valid records
  double SloProbability() const;  // the least probable limit's; 1 without limits
};

// All records of one candidate at one level. `records` is not empty.
LevelResult Combine(double level, const std::vector<store::RunRecord>& records, const Plan& plan);

}  // namespace tare::advise
