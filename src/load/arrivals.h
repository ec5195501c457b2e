// When requests are wanted: the arrival process, as a pure sequence of times. The same spec and
// seed give the same times, whoever asks.
//
// Every open-loop process is built the same way: gaps of mean 1 (constant, exponential or gamma)
// are laid out in units of expected arrivals and mapped to time through the inverse of the
// cumulative rate, so bursts and ramps keep the process's character while its rate moves. Thread
// safety: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/types.h"
#include "load/random.h"
#include "load/runner.h"

namespace tare::load {

// What of the spec contradicts itself, in the user's words.
Status CheckArrivals(const ArrivalSpec& spec);

// "poisson", "constant", "gamma:2.5", "trace:FILE" into kind, cv and trace of `spec`.
Status ParseArrival(std::string_view text, ArrivalSpec& spec);

// The spec as the record keeps it.
nlohmann::json Describe(const ArrivalSpec& spec);

// Requests per second wanted at `at` after the start.
double RateAt(const ArrivalSpec& spec, Nanos at);

class ArrivalSchedule {
 public:
  // An open-loop spec that CheckArrivals accepts, other than a trace.
  ArrivalSchedule(const ArrivalSpec& spec, std::uint64_t seed);
  // The next time after the start; never decreasing, without end.
  Nanos Next();

 private:
  double Gap();

  ArrivalSpec spec_;
  Random random_;
  double seconds_ = 0;
  bool first_ = true;
};

}  // namespace tare::load
