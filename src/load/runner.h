// Runs a load test against an OpenAI-compatible server and returns its record: the one door
// `tare load` and `tare advise` use.
//
// RunLoad blocks the calling thread for the length of the run (plus warm-up and drain); the load
// itself comes from threads of its own. It never throws. A run in which every request failed is
// still a record (valid = false); an error is returned only when no run could take place: an
// unusable URL, options that contradict each other, a server that never answered the first probe.
// Thread safety: several runs may be in flight at once, but they disturb each other's timing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "store/run_record.h"

namespace tare::load {

class Fleet;

// How requests come.
struct ArrivalSpec {
  enum class Kind {
    kClosed,    // `users` each send the next request when the last is answered
    kConstant,  // `rate` per second, evenly spaced
    kPoisson,   // `rate` per second, exponential gaps
    kGamma,     // `rate` per second, gamma gaps with coefficient of variation `cv`
    kTrace,     // the times of `trace`, `speedup` times as fast; or drawn from clients' parameters
  };
  Kind kind = Kind::kClosed;
  int users = 1;
  // Between an answer and the user's next request: in a closed loop, and between the turns of a
  // session. `think_exponential`: the mean of exponentially distributed pauses.
  Nanos think_time{0};
  bool think_exponential = false;
  double rate = 0;  // requests per second
  double cv = 1;
  std::filesystem::path trace;
  double speedup = 1;
  // The part of a trace to replay, in its own time; length 0: to its end. `rate` above 0 scales
  // drawn traces (servegen.h) to that mean.
  Nanos trace_from{0};
  Nanos trace_length{0};
  // Every `burst_every` the rate is multiplied by `burst_factor` for `burst_for`; open loop only.
  double burst_factor = 1;
  Nanos burst_for{0};
  Nanos burst_every{0};
  // The rate moves from `rate` to `ramp_to` during the first `ramp_over`; open loop only.
  double ramp_to = 0;
  Nanos ramp_over{0};
};

// At least `quantile` of all requests stay within `seconds`.
struct PercentileLevel {
  std::string metric;  // "ttft", "itl", "tpot", "e2e"
  double quantile = 0.99;
  double seconds = 0;
};

// Limits one request must meet, all at once, to count as good (seconds; absent: no limit), and
// limits on percentiles over all requests.
struct ServiceLevels {
  std::optional<double> ttft, itl, tpot, e2e;  // itl: the mean gap of the request's chunks
  double good_share = 0.99;  // of requests that must be good for the levels to hold
  std::vector<PercentileLevel> percentiles;
  bool per_request() const { return ttft || itl || tpot || e2e; }
  bool any() const { return per_request() || !percentiles.empty(); }
};

// What is asked.
struct WorkloadSpec {
  int input_tokens = 512;   // of the prompt, chat template included where the server counts it
  int output_tokens = 128;  // asked as max_tokens with ignore_eos, so answers have this length
  std::filesystem::path dataset;  // JSONL, JSON or CSV; replaces the synthetic prompts when set
  // Above 1: sessions. Each request of a session sends the whole conversation so far, with the
  // answers the server really gave. Synthetic sessions have this many turns, those of a data set as
  // many as the conversation has, this many at most.
  int turns = 1;
  int turn_tokens = 0;  // of each later message of a synthetic session; 0: input_tokens
  // Share of input_tokens that is the same in every prompt. 0: every prompt is unique from its
  // first token, so that a warm prefix cache cannot flatter the server.
  double shared_prefix = 0;
  // Cuts the lengths of a trace, tokens; 0: as the trace has them.
  int max_input_tokens = 0;
  int max_output_tokens = 0;
  std::uint64_t seed = 0;  // 0: drawn at random and recorded
  // Counts the tokens of a text with the model's own tokenizer. When absent, the target's
  // /tokenize is asked; when that does not exist either, lengths are calibrated against the
  // prompt_tokens the server reports.
  std::function<Result<std::size_t>(const std::string& text)> count_tokens;
};

enum class Api { kChat, kCompletions };

struct LoadOptions {
  std::string url;      // "http://127.0.0.1:8000", with or without a trailing /v1
  std::string model;    // empty: the first the server lists
  std::string api_key;  // sent as a bearer token when not empty, never stored
  std::string name;     // the run's label
  Api api = Api::kChat;
  bool stream = true;
  double temperature = 0;
  ArrivalSpec arrival;
  WorkloadSpec workload;
  ServiceLevels levels;
  Nanos duration{0};             // of the measured window; 0: until `requests` are answered
  std::uint64_t requests = 0;    // 0: until `duration` has passed
  std::optional<Nanos> warm_up;  // before the window; absent: see docs/LOAD.md
  Nanos drain = std::chrono::seconds(30);  // how long answers may take after the window
  Nanos request_timeout = std::chrono::minutes(5);
  Nanos connect_timeout = std::chrono::seconds(5);
  int threads = 0;                // client event loops; 0: chosen from the load
  Fleet* fleet = nullptr;         // sends the load; null: this process. Not owned.
  std::optional<int> server_pid;  // memory is read from it; absent: found for a loopback URL
  bool verify_tls = true;
  std::filesystem::path out_dir;  // CSV files per request and per second; empty: none
  bool keep_chunks = false;       // every token-bearing chunk into out_dir/chunks.csv.zst
  nlohmann::json target_facts;    // merged into the record's target (server flags, machine)
};

struct LoadProgress {
  enum class Phase { kPreparing, kWarmUp, kMeasuring, kDraining };
  Phase phase = Phase::kPreparing;
  double share = 0;  // of the whole run, 0 to 1
  double elapsed_s = 0;
  std::uint64_t in_flight = 0, ok = 0, failed = 0;
  double requests_per_s = 0;       // completed, over the last second
  double output_tokens_per_s = 0;  // received, over the last second
};

class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // About ten times a second, from the thread that called RunLoad.
  virtual void OnProgress(const LoadProgress& progress) = 0;
  // Asked about ten times a second: true ends the run early; what was measured is kept.
  virtual bool Cancelled() { return false; }
};

// The warm-up of a run of this length when none is asked for: a tenth of it, at most ten seconds;
// none when the run counts requests (`duration` 0).
Nanos DefaultWarmUp(Nanos duration);

// Every stream is a descriptor: takes as many as the system lets this process have.
void RaiseFileLimit();

// `progress` may be null.
Result<store::RunRecord> RunLoad(const LoadOptions& options, ProgressSink* progress);

}  // namespace tare::load
