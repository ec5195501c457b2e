// What to do after an upstream's failure: the rules, without any I/O.
//
// Failures before the first delivered token are one of: the request's own fault (never retried
// anywhere), a prompt too long (a model with more context may take it), a rate limit or a passing
// fault (the same upstream again, later), silence or bad credentials (another upstream, at once).
// Back-off is 1.2^attempt seconds with jitter, at least what Retry-After says; retries are bounded
// per upstream and by a budget over all requests, so that an outage is not answered by a storm.
//
// Thread safety: pure functions; RetryBudget belongs to one thread.
#pragma once

#include <optional>

#include "base/result.h"
#include "base/types.h"

namespace tare::gateway {

struct Failure {
  Error error;
  int status = 0;                    // HTTP status of the upstream; 0: none came
  std::optional<Nanos> retry_after;  // as the upstream asked
  bool silent = false;               // it took the request and then nothing came in time
};

enum class FailureClass { kRequest, kContext, kRateLimit, kPassing, kSilent, kCredentials };
FailureClass Classify(const Failure& failure);
// Whether it says something about the upstream's health; 4xx never do.
bool CountsAgainstHealth(FailureClass failure);

struct RetryPolicy {
  int attempts = 3;                                 // on one upstream, the first included
  Nanos unit = std::chrono::seconds(1);             // of the back-off: unit * 1.2^attempt
  double jitter = 0.1;                              // share added at random
  Nanos max_retry_after = std::chrono::seconds(5);  // longer ones mean: go elsewhere
};

struct Decision {
  enum Action { kRetrySame, kNextUpstream, kGiveUp };
  Action action = kGiveUp;
  Nanos delay{};  // before kRetrySame
};
// `attempts` were made on this upstream, `random` is uniform in [0, 1).
Decision Decide(const Failure& failure, int attempts, double random, const RetryPolicy& policy);

// Every request earns a share of a retry; a retry spends one. Starts full.
class RetryBudget {
 public:
  explicit RetryBudget(double share = 0.2, double limit = 100) : share_(share), limit_(limit) {}
  void OnRequest() { tokens_ = tokens_ + share_ < limit_ ? tokens_ + share_ : limit_; }
  bool Spend() {
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

 private:
  const double share_;
  const double limit_;
  double tokens_ = limit_;
};

}  // namespace tare::gateway
