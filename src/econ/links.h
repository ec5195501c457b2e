// Traffic between devices (SPEC row EC11): moving a cache over a link, and what expert parallelism
// exchanges. Bytes, seconds; a link's rate is one direction.
#pragma once

#include "econ/model_facts.h"

namespace tare::econ {

struct LinkMove {
  double bytes = 0;
  double seconds_at_peak = 0;
  double link_used = 0;  // share of the peak, when the move takes `seconds`
};
// Cached keys and values of one sequence over a link. `seconds` 0 asks only for the peak time.
LinkMove MoveCache(const ModelFacts& model, const Precision& cache, double context_tokens,
                   double link_bytes_per_second, double seconds);

// Bytes a link carries in `seconds` at `share` of its peak: what a claimed utilisation implies.
inline double ImpliedLinkBytes(double link_bytes_per_second, double share, double seconds) {
  return link_bytes_per_second * share * seconds;
}

// All-to-all bytes a token causes, both ways, when the experts of each sparse layer are spread
// evenly over `devices`: each of the chosen experts is elsewhere with probability (n-1)/n, and a
// device gets a token once however many of its experts were chosen.
double AllToAllBytesPerToken(const ModelFacts& model, int devices);
// Expected number of distinct devices among the chosen experts of one token.
double ExpectedTargetDevices(int experts, int experts_per_token, int devices);

}  // namespace tare::econ
