// SIGTERM, SIGINT and SIGHUP as events of one thread instead of handlers.
//
// Create before any other thread starts: the signals are blocked in the creating thread and those
// made after it. One at a time.
#pragma once

#include "base/result.h"
#include "base/types.h"

namespace tare::gateway {

class SignalWaiter {
 public:
  static Result<SignalWaiter> Create();
  SignalWaiter(SignalWaiter&& other) noexcept;
  SignalWaiter& operator=(SignalWaiter&&) = delete;
  ~SignalWaiter();

  static constexpr int kNothing = -1;
  // Blocks until a signal comes (its number), Wake was called (0) or `patience` is over (kNothing).
  int Wait(Nanos patience = Nanos::max());
  // From any thread: ends the Wait under way or the next one.
  void Wake();

 private:
  SignalWaiter(int signals, int wakes) : signals_(signals), wakes_(wakes) {}
  int signals_;
  int wakes_;
};

}  // namespace tare::gateway
