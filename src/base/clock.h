// Time as a dependency, so that tests and the simulator own it.
//
// Thread safety: SteadyClock and ManualClock may be used from any thread.
#pragma once

#include <atomic>

#include "base/types.h"

namespace tare {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic; the zero point is arbitrary.
  virtual Nanos Now() const = 0;
};

// CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
 public:
  Nanos Now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
};

// The clock an option names; CLOCK_MONOTONIC for none.
inline const Clock* OrSteady(const Clock* clock) {
  static const SteadyClock steady;
  return clock != nullptr ? clock : &steady;
}

// Moves only when told.
class ManualClock final : public Clock {
 public:
  Nanos Now() const override { return Nanos(now_.load(std::memory_order_acquire)); }
  void Advance(Nanos by) { now_.fetch_add(by.count(), std::memory_order_acq_rel); }
  void Set(Nanos now) { now_.store(now.count(), std::memory_order_release); }

 private:
  std::atomic<std::int64_t> now_{0};
};

}  // namespace tare
