// The client of the gateway's benchmarks: requests at a constant rate, or many streams at once.
#pragma once

#include <cstdint>
#include <string>

#include "base/histogram.h"
#include "base/result.h"
#include "base/types.h"
#include "net/url.h"

namespace tare::bench {

struct LoadResult {
  Histogram latency{7};  // ns, from the intended start to the last byte
  std::uint64_t ok = 0;
  std::uint64_t failed = 0;
  std::uint64_t chunks = 0;  // events with content
  double seconds = 0;
  std::string first_failure;
};

struct LoadOptions {
  net::Url url;  // of the chat endpoint
  std::string key;
  std::string body;
  double rate = 0;   // requests/s, open loop; 0: `streams` at once, each `repeats` times
  Nanos duration{};  // of a rate
  int streams = 0;
  int repeats = 1;
};

Result<LoadResult> RunLoad(const LoadOptions& options);

}  // namespace tare::bench
