// What this client can do on this machine, measured against the built-in pacing server, whose true
// times are known: the ceiling in streamed chunks and in plain requests per second of one core, how
// many streams one process holds at once, and how wrong its time stamps are, by load.
//
// The client's rates are per second of CPU time it used, so that the server beside it and whatever
// else runs on the machine do not count.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace tare::load {

struct SelfTestOptions {
  Nanos per_point = std::chrono::seconds(2);
  int streams = 10'000;  // concurrently, for the last point; fewer when files run out
  // The server in a process of its own: its descriptors and memory are not the client's. Needs a
  // process that has no threads yet.
  bool separate_process = true;
  std::function<void(const std::string&)> say;  // progress; may be empty
};

struct TimingError {  // of recorded receipts against the server's send stamps, seconds
  double p50 = 0, p99 = 0, max = 0;
  std::uint64_t n = 0;
};

struct SelfTestPoint {
  std::string what;
  int streams = 0;
  double asked_chunks_per_s = 0;  // 0: as many as go
  double chunks_per_s = 0;        // by the wall clock
  double chunks_per_s_per_core = 0;
  double client_cores = 0;
  TimingError error;
  bool held = true;  // at least 95 % of what was asked, no request failed
};

struct SelfTestResult {
  double chunks_per_s_per_core = 0;    // saturated
  double requests_per_s_per_core = 0;  // not streamed
  int streams = 0;                     // the most held at once
  TimingError timing_error;            // at about half the ceiling
  std::vector<SelfTestPoint> points;
};

Result<SelfTestResult> RunSelfTest(const SelfTestOptions& options);

std::string SelfTestTable(const SelfTestResult& result);
// {"chunks_per_s_per_core", "streams", "timing_error_s": {...}, ...}
std::string SelfTestJson(const SelfTestResult& result);

}  // namespace tare::load
