// The highest arrival rate at which the service levels hold, as an interval: a rate shown to hold
// and a rate shown to break. Pure policy: it says which rate to try next and for how long, and is
// told what was seen; it sends nothing and has no clock.
//
//   1. climb     from LOW by factors of four until a rate breaks (never straight to HIGH: a server
//                far beyond its limit may not come back)
//   2. bisect    at the geometric middle of what holds and what breaks
//   3. repeat    a rate whose requests leave the answer open is tried again, evidence pooled; one
//                that stays open is left inside the interval, which is narrowed from both sides
//   4. confirm   each end of the interval is tried once more; evidence that turns reopens it
//
// A probe that is invalid for the client's own reasons is no evidence: it is tried again once, and
// a rate that cannot be tested caps the search from above without counting as broken.
//
// The answer rests on service being worse at higher rates; evidence to the contrary (a rate that
// holds above one that breaks) is not used. Thread safety: one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "load/levels.h"

namespace tare::load {

struct SearchSpec {
  double low = 0, high = 0;  // requests per second
  double resolution = 0.05;  // the interval's relative width at which the search ends
  Nanos budget = std::chrono::minutes(10);
  Nanos probe{0};      // measured time of one probe; 0: chosen from rate and levels
  int most_tries = 4;  // of one rate
};

Status CheckSearch(const SearchSpec& spec, const ServiceLevels& levels);

// "1:50" into low and high.
Status ParseSearchRate(std::string_view text, SearchSpec& spec);

enum class ProbeOutcome { kHolds, kBreaks, kUnclear, kInvalid };
const char* ToString(ProbeOutcome outcome);

struct SearchAnswer {
  std::optional<double> holds;   // the highest rate shown to hold; absent: none
  std::optional<double> breaks;  // the lowest rate above it shown to break; absent: none
  // The lowest rate above `holds` that could not be tested, when it is what ended the search.
  std::optional<double> untested;
  std::string why;  // the search ended, in words
};

class RateSearch {
 public:
  RateSearch(const SearchSpec& spec, const ServiceLevels& levels);

  struct Probe {
    double rate = 0;
    Nanos length{0};  // of the measured window
    int attempt = 1;  // of this rate
  };
  // The next probe, or nothing: the search is over. `elapsed` since it began.
  std::optional<Probe> Next(Nanos elapsed);

  // What the probe that Next named has shown. `overhead`: its time beyond the measured window.
  // Returns what is known of that rate now, all tries together.
  ProbeOutcome Report(const std::vector<LevelShare>& shares, Nanos overhead);
  // The probe was no measurement.
  ProbeOutcome ReportInvalid(const std::string& why, Nanos overhead);

  SearchAnswer Answer() const;

  struct Point {  // all that is known of one rate
    std::vector<LevelShare> shares;
    int tries = 0;    // valid ones
    int invalid = 0;  // tries that were no measurement
    ProbeOutcome outcome = ProbeOutcome::kUnclear;
  };
  const std::map<double, Point>& points() const { return points_; }

 private:
  std::optional<double> Choose();
  std::optional<double> HighestHold() const;
  std::optional<double> LowestBreak() const;
  std::optional<double> Ceiling() const;
  Nanos LengthOf(double rate) const;
  bool Settled(const Point& point) const;

  SearchSpec spec_;
  double samples_ = 0;  // that one probe should bring
  std::map<double, Point> points_;
  Probe current_;
  Nanos overhead_{0};  // of the longest probe so far
  std::string why_;
};

}  // namespace tare::load
