// A server whose start is timed from outside, whatever it is: it is known where it will listen.
// (LocalServer is for our own, which says so itself.)
//
// Ownership, lifetime and thread safety are those of ChildProcess; what it writes to stdout is
// discarded.
#pragma once

#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/result.h"
#include "base/types.h"
#include "net/url.h"

namespace tare::load {

class ServerProcess {
 public:
  static Result<ServerProcess> Start(const std::vector<std::string>& command);

  int pid() const { return process_.pid(); }
  Nanos started() const { return started_; }

  // Seconds after the start. The process's end and the deadline (since the start) end the wait with
  // an error. Ready: /ready, else /health, answers 200.
  Result<double> WaitListening(const net::Url& base, Nanos deadline);
  Result<double> WaitReady(const net::Url& base, Nanos deadline);

 private:
  ServerProcess(ChildProcess process, Nanos started)
      : process_(std::move(process)), started_(started) {}
  template <typename Done>
  Result<double> WaitFor(Nanos deadline, const char* what, const Done& done);

  ChildProcess process_;
  Nanos started_{0};
};

}  // namespace tare::load
