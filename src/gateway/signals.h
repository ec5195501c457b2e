// SIGTERM and SIGINT as events of one thread instead of handlers.
//
// Create before any other thread starts: the signals are blocked in the creating thread and those
// made after it. One at a time.
#pragma once

#include "base/result.h"

namespace tare::gateway {

class SignalWaiter {
 public:
  static Result<SignalWaiter> Create();
  SignalWaiter(SignalWaiter&& other) noexcept;
  SignalWaiter& operator=(SignalWaiter&&) = delete;
  ~SignalWaiter();

  // Blocks until a signal comes (its number) or Wake was called (0).
  int Wait();
  // From any thread: ends the Wait under way or the next one.
  void Wake();

 private:
  SignalWaiter(int signals, int wakes) : signals_(signals), wakes_(wakes) {}
  int signals_;
  int wakes_;
};

}  // namespace tare::gateway
