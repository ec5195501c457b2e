// What `tare advise` is asked: candidates, the load they are put under, the service levels they
// must keep, and what their machines cost. docs/ADVISE.md describes the file; examples/demo.yaml is
// one.
//
// ParsePlan is pure: no file but the plan's text is read. Plain values; no thread safety needed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "base/types.h"
#include "sim/replica_group.h"

namespace tare::advise {

enum class Metric { kTtft, kItl, kTpot, kE2e };
inline constexpr Metric kMetrics[] = {Metric::kTtft, Metric::kItl, Metric::kTpot, Metric::kE2e};
const char* ToString(Metric metric);  // "ttft"

enum class Percentile { kP50, kP90, kP95, kP99 };
inline constexpr Percentile kPercentiles[] = {Percentile::kP50, Percentile::kP90, Percentile::kP95,
                                              Percentile::kP99};
const char* ToString(Percentile percentile);  // "p90"
double ShareOf(Percentile percentile);        // 0.9
// Answers needed before the percentile is printed (99 % confidence; DESIGN.md, "Words we use").
std::uint64_t SamplesNeeded(Percentile percentile);

// "The 90th percentile of the time to first token stays within 2 s."
struct LatencyLimit {
  Metric metric = Metric::kTtft;
  Percentile percentile = Percentile::kP90;
  double limit_s = 0;
};

struct ServiceLevels {
  std::vector<LatencyLimit> latency;
  double max_error_share = 0.01;
  std::optional<double> min_quality;  // in the unit of the candidates' quality metric
};

// How good the answers are, from an evaluation somebody ran; Tare prints it and its source.
struct Quality {
  std::string metric;  // "perplexity", "HumanEval pass@1"
  double value = 0;
  bool higher_is_better = true;
  std::string source;
};

// What a vendor says a deployment does: the figures, and enough about what runs where to hold them
// against the machine's limits.
struct ClaimedFigures {
  std::string model, device;  // names of the catalogue
  int devices = 1;
  std::string precision;
  double users = 0;         // requests under way at a time; 0: not published (open loop only)
  double memory_bytes = 0;  // of all devices; 0: not published
  double output_tokens_per_s = 0;
  int input_tokens = 0, output_tokens = 0;  // of a request, of which the figures are
  std::vector<LatencyLimit> latency;        // "the 90th percentile is 800 ms"
  double error = 0.5;  // mean share the figures are taken to be off by: assumed, > 0
  std::string source;
};

struct Candidate {
  enum class Kind {
    kLocal,      // `tare serve` on this machine, started and stopped by us
    kRemote,     // an OpenAI-compatible server at `url`
    kStored,     // measured before: run records in the store
    kSimulated,  // `tare sim` of a model and device of the catalogue, or of a calibration
    kClaimed,    // a vendor's figures; impossible ones put it out
  };
  std::string name;
  Kind kind = Kind::kLocal;
  // kLocal
  std::filesystem::path model;
  std::string dtype = "auto";
  int threads = 0;                 // 0: the server's own choice
  std::vector<std::string> flags;  // handed to `tare serve` as they are
  // kRemote; of kStored, kSimulated and kClaimed: where it will be served, for the routing plan
  std::string url, served_model;
  std::string api_key_env;  // name of the environment variable that holds the key
  // kStored
  std::vector<std::string> runs;
  // kSimulated; its replicas are the candidate's machines
  sim::ReplicaPlan replica;
  // kClaimed
  ClaimedFigures claimed;
  // Published claims about it, judged before anything is run: a claims file (docs/CLAIMS.md).
  std::filesystem::path claims;
  // money
  std::optional<double> usd_per_hour;  // of one machine
  std::string machine;                 // else an entry of the price file
  int machines = 1;                    // how many carry the candidate
  std::optional<Quality> quality;
  int line = 0;  // in the plan, for messages
};

struct LoadPlan {
  // One level after the other is put on each candidate: users that each wait for their answer
  // (closed loop), or requests a second that come whatever happens (open loop, Poisson).
  bool open_loop = false;
  std::vector<double> levels = {1, 8};
  std::uint64_t requests = 0;  // a level ends after this many answers,
  Nanos duration{0};           // or after this time; one of the two is set
  int rounds = 1;              // how often every candidate takes its turn
  int input_tokens = 128;
  int output_tokens = 32;
  double length_cv = 0;  // of both lengths, log-normal; simulated candidates only
  double shared_prefix = 0;
  std::filesystem::path dataset;
  std::uint64_t seed = 1;
  std::optional<Nanos> warm_up;
};

struct TrafficPlan {
  double tokens_per_day = 0;  // input and output
  double peak_to_mean = 1;
};

struct Plan {
  std::string name;
  std::string source;  // the file's name as given
  std::string text;    // the file, kept for the report
  LoadPlan load;
  ServiceLevels levels;
  std::optional<TrafficPlan> traffic;
  std::vector<Candidate> candidates;  // 1 or more, names unique
  // Prices where a candidate names none.
  std::optional<double> usd_per_hour;
  std::filesystem::path price_file;  // empty: the one built in
  double utilisation = 1;            // mean load over all paid hours ÷ measured capacity
  // The answer abstains unless the first is best with this probability, and by this margin.
  double confidence = 0.95;
  double min_difference = 0.02;
  // The routing plan uses every candidate that keeps the service levels, by weight, and the others
  // for batch work; else the best for each tier.
  bool mix = false;
};

// Command-line values that replace the plan's.
struct PlanOverrides {
  std::optional<std::filesystem::path> model;  // for local candidates that name none
  std::optional<double> usd_per_hour;          // for candidates on this machine
};

Result<Plan> ParsePlan(std::string_view text, std::string source, const PlanOverrides& overrides);
Result<Plan> LoadPlanFile(const std::filesystem::path& path, const PlanOverrides& overrides);

// "8 users at once" or "2.5 requests/s".
std::string DescribeLevel(const LoadPlan& load, double level);

}  // namespace tare::advise
