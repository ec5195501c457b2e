// A server started by the load tester itself: for cold starts and for sweeps over precisions.
//
// Ownership: the process ends with the object (SIGTERM, then SIGKILL after ten seconds). Its output
// is discarded. Thread safety: one thread at a time.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "net/url.h"

namespace tare::load {

class ServerProcess {
 public:
  // Program and arguments; the program is looked up in PATH.
  static Result<ServerProcess> Start(const std::vector<std::string>& command);
  ServerProcess(ServerProcess&& other) noexcept;
  ServerProcess& operator=(ServerProcess&&) = delete;
  ~ServerProcess();

  int pid() const { return pid_; }
  Nanos started() const { return started_; }
  bool Running();
  void Stop();

  // Seconds after the start. The process's end and the deadline (since the start) end the wait with
  // an error. Ready: /ready, else /health, answers 200.
  Result<double> WaitListening(const net::Url& base, Nanos deadline);
  Result<double> WaitReady(const net::Url& base, Nanos deadline);

 private:
  ServerProcess() = default;
  template <typename Done>
  Result<double> WaitFor(Nanos deadline, const char* what, const Done& done);

  pid_t pid_ = -1;
  Nanos started_{0};
};

// A port of loopback that nobody listens on now.
Result<std::uint16_t> FreePort();

}  // namespace tare::load
