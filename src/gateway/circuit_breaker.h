// Keeps requests away from an upstream that keeps failing, and finds out when it is well again.
//
// Closed: everything passes; `threshold` failures in a row open it. Open: nothing passes for
// `open_for`. Half-open: one request passes as the probe; its success closes the breaker, its
// failure opens it again.
//
// Thread safety: belongs to one thread. Time is the caller's.
#pragma once

#include "base/types.h"

namespace tare::gateway {

class CircuitBreaker {
 public:
  struct Options {
    int threshold = 5;
    Nanos open_for = std::chrono::seconds(10);
    bool operator==(const Options&) const = default;
  };
  explicit CircuitBreaker(Options options) : options_(options) {}

  // Whether a request may go now. A true answer in half-open state makes it the probe: exactly one
  // of OnSuccess, OnFailure and OnNoVerdict must follow.
  bool Allow(Nanos now) {
    if (!WouldAllow(now)) return false;
    probing_ = open_;
    return true;
  }
  // The same, without becoming the probe.
  bool WouldAllow(Nanos now) const {
    return !open_ || (!probing_ && now >= opened_ + options_.open_for);
  }
  void OnSuccess() {
    open_ = probing_ = false;
    failures_ = 0;
  }
  void OnFailure(Nanos now) {
    ++failures_;
    if (!probing_ && failures_ < options_.threshold) return;
    open_ = true;
    probing_ = false;
    opened_ = now;
  }
  // The request ended without saying anything about health: the client left, a 4xx.
  void OnNoVerdict() { probing_ = false; }

  bool open() const { return open_; }

 private:
  const Options options_;
  int failures_ = 0;  // in a row
  bool open_ = false;
  bool probing_ = false;
  Nanos opened_{};
};

}  // namespace tare::gateway
