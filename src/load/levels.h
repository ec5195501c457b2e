// Service levels: as words on the command line, and as shares of requests that a run either shows
// to be enough, shows to be too few, or cannot tell.
//
//   ttft=500ms       one request's limit; those that meet every such level together are good, and
//                    their share must reach ServiceLevels::good_share
//   ttft_p99=500ms   at least 99 % of all requests stay within it
//
// Both ask the same of a run: that a share of its requests, failures counted as misses, is at least
// what is needed. A share is judged by its Wilson score interval with as many samples as the series
// is worth under its autocorrelation, for neighbours in a queue are late together.
// Latencies count from the intended time. Pure functions.
// Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "load/runner.h"
#include "store/run_record.h"

namespace tare::load {

// "ttft=500ms,itl=50ms,e2e_p99=4s". Percentiles p1 to p99.9.
Status ParseLevels(std::string_view text, ServiceLevels& levels);

// The levels as the record keeps them: {"ttft_s": 0.5, "e2e_p99_s": 4}.
nlohmann::json Describe(const ServiceLevels& levels);

enum class LevelVerdict { kHolds, kBreaks, kUnclear };
const char* ToString(LevelVerdict verdict);

struct LevelShare {
  std::string name;    // "good", "ttft_p99"
  double needed = 0;   // share of requests
  double met = 0;      // requests that meet it, scaled to effective samples
  double samples = 0;  // effective; 0: no request was measured
  double share() const { return samples > 0 ? met / samples : 0; }
  // Bounds of the true share, one-sided at the confidence of kLevelConfidence each.
  double low() const;
  double high() const;
  LevelVerdict verdict() const;
  // The same level seen in another run at the same load.
  void Pool(const LevelShare& other);
};

// Each bound is wrong in at most one of forty cases: a 95 % interval has two of them.
inline constexpr double kLevelZ = 1.959964;

// Samples that are needed to show a share of `needed` when every request meets the level.
double LeastSamplesFor(double needed);

// One entry per percentile level and one ("good") when there are limits per request, from the
// series of a stored or fresh record.
std::vector<LevelShare> SharesOf(const store::RunRecord& record, const ServiceLevels& levels);

// Holds when all do, breaks when one does.
LevelVerdict Together(const std::vector<LevelShare>& shares);

nlohmann::json ToJson(const LevelShare& share);

}  // namespace tare::load
