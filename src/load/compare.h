// Is the difference between two runs real? Each metric's ratio gets a 95 % interval by a
// moving-block bootstrap: whole blocks of neighbouring requests (or seconds) are drawn again, so
// what makes neighbours alike (queues, batches) does not pass for precision. A difference is
// claimed only when the interval leaves out 1.
//
// Pure; the same records and seed give the same intervals.
// Source: Künsch (1989), The jackknife and the bootstrap for general stationary observations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/run_record.h"

namespace tare::load {

struct Difference {
  std::string metric;        // "ttft_p50_s", "output_tokens_per_s", ...
  double a = 0, b = 0;       // the figure in each run
  double ratio = 0;          // b / a
  double low = 0, high = 0;  // 95 % interval of the ratio
  bool higher_is_better = false;
  // "better", "worse": b against a, beyond doubt; "cannot tell": the interval holds 1;
  // "too few samples".
  std::string verdict;
};

std::vector<Difference> Compare(const store::RunRecord& a, const store::RunRecord& b,
                                std::uint64_t seed = 1);

}  // namespace tare::load
