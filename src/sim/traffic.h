// The requests of a simulation: the load tester's arrivals, and lengths from classes or a trace.
// Request `index` of a seed is always the same.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "load/arrivals.h"
#include "load/trace.h"
#include "sim/request.h"

namespace tare::sim {

// One kind of request; a request is of a class with the class's share.
struct TrafficClass {
  std::string name;
  double share = 1;  // relative to the others'
  engine::Tier tier = engine::Tier::kInteractive;
  int input_tokens = 512;  // mean
  int output_tokens = 128;
  double length_cv = 0;      // of both lengths, log-normal; 0: all the same
  double shared_prefix = 0;  // share of the mean prompt that is the same in all of the class
};

struct TrafficSpec {
  load::ArrivalSpec arrival;  // kTrace: lengths come from the trace too, `classes` is not used
  std::vector<TrafficClass> classes;
  // Trace only.
  std::shared_ptr<const load::Trace> trace;  // null: read from arrival.trace
  bool repeat = false;  // begins again when it ends, with fresh names for its shared blocks
  int max_input_tokens = 0, max_output_tokens = 0;  // cuts; 0: none
  double batch_share = 0;                           // of requests that are of the batch tier
  // The beginning that all prompts of a trace without blocks share (a chat template), tokens; and
  // what a prompt's tokens are multiplied by: what a server counted to what the trace says.
  int shared_tokens = 0;
  double input_scale = 1;
  std::uint64_t seed = 1;
};

class Traffic {
 public:
  static Result<Traffic> Create(const TrafficSpec& spec);

  bool closed() const { return spec_.arrival.kind == load::ArrivalSpec::Kind::kClosed; }
  // Open loop: the time of the next request; nothing when a trace has ended.
  std::optional<Nanos> NextArrival();
  SimRequest Make(std::uint64_t index) const;
  // The longest prompt and answer together, tokens, as far as it is known beforehand.
  int LongestSequence() const;
  nlohmann::json Describe() const;

 private:
  Traffic() = default;
  SimRequest FromTrace(std::uint64_t index) const;
  int Scaled(int input_tokens) const;

  TrafficSpec spec_;
  std::shared_ptr<const load::Trace> trace_;
  Nanos period_{};  // of a repeated trace
  std::optional<load::ArrivalSchedule> schedule_;
  std::uint64_t next_ = 0;
  double share_sum_ = 0;
};

// The requests `spec` makes in its first `length`, as a trace: who replays it sends exactly them.
// Open loops only. Tiers and shared beginnings are not part of a trace.
Result<load::Trace> TraceOf(const TrafficSpec& spec, Nanos length, std::string name);

}  // namespace tare::sim
