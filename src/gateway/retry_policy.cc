#include "gateway/retry_policy.h"

#include <algorithm>
#include <cmath>

#include "api/wire_error.h"

namespace tare::gateway {

FailureClass Classify(const Failure& failure) {
  if (failure.silent) return FailureClass::kSilent;
  if (failure.error.code == api::kContextLengthExceeded) return FailureClass::kContext;
  switch (failure.status) {
    case 401:
    case 403:
      return FailureClass::kCredentials;
    case 408:
      return FailureClass::kPassing;
    case 429:
      return FailureClass::kRateLimit;
    default:
      break;
  }
  if (failure.status >= 400 && failure.status < 500) return FailureClass::kRequest;
  if (failure.status == 0 && (failure.error.kind == ErrorKind::kInvalidArgument ||
                              failure.error.kind == ErrorKind::kUnsupported ||
                              failure.error.kind == ErrorKind::kNotFound)) {
    return FailureClass::kRequest;  // a local model's verdict has no status
  }
  return FailureClass::kPassing;
}

bool CountsAgainstHealth(FailureClass failure) {
  return failure == FailureClass::kPassing || failure == FailureClass::kSilent;
}

Decision Decide(const Failure& failure, int attempts, double random, const RetryPolicy& policy) {
  const FailureClass kind = Classify(failure);
  if (kind == FailureClass::kRequest) return {Decision::kGiveUp, {}};
  if (kind != FailureClass::kRateLimit && kind != FailureClass::kPassing) {
    return {Decision::kNextUpstream, {}};
  }
  const Nanos asked = failure.retry_after.value_or(Nanos{});
  if (attempts >= policy.attempts || asked > policy.max_retry_after) {
    return {Decision::kNextUpstream, {}};
  }
  const double unit = static_cast<double>(policy.unit.count());
  const double wait = unit * std::pow(1.2, attempts) * (1.0 + policy.jitter * random);
  return {Decision::kRetrySame, std::max(asked, Nanos(static_cast<std::int64_t>(wait)))};
}

}  // namespace tare::gateway
