// A server started for one measurement and stopped after it: `tare serve` on a port of its own.
//
// It writes its log to a file and says on it where it listens ("listening http://127.0.0.1:PORT").
// Ownership, lifetime and thread safety are those of ChildProcess.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/result.h"
#include "base/types.h"

namespace tare::load {

struct LocalServerOptions {
  std::vector<std::string> command;  // program (a path, or looked up in PATH) and its arguments
  std::filesystem::path log;         // the child's stdout and stderr; replaced when it exists
  Nanos ready_timeout = std::chrono::minutes(5);   // loading a large model takes its time
  Nanos drain_timeout = std::chrono::seconds(10);  // between SIGTERM and SIGKILL
  // Asked while waiting; true gives up with kCancelled. May be empty.
  std::function<bool()> cancelled;
};

class LocalServer {
 public:
  // Returns when GET /ready answers 200. On failure nothing is left running, and the message holds
  // the last lines of the log.
  static Result<LocalServer> Start(const LocalServerOptions& options);

  LocalServer(LocalServer&&) = default;
  LocalServer& operator=(LocalServer&&) = default;
  ~LocalServer();

  const std::string& url() const { return url_; }  // "http://127.0.0.1:43210"
  int pid() const { return process_.pid(); }
  // From the start of the process to the first 200 of /ready.
  Nanos time_to_ready() const { return time_to_ready_; }
  bool running() { return process_.Running(); }
  // `what`, how the process ended (once it has), and the last lines of its log.
  std::string DescribeEnd(const std::string& what) const;

  // SIGTERM to the group, then SIGKILL after the drain time. Fails when it had to kill, or when the
  // server had died before (with the end of its log).
  Status Stop();

 private:
  explicit LocalServer(ChildProcess process) : process_(std::move(process)) {}
  Status WaitUntilReady(const LocalServerOptions& options);

  ChildProcess process_;
  std::string url_;
  std::filesystem::path log_;
  Nanos time_to_ready_{0};
  Nanos drain_timeout_{0};
};

}  // namespace tare::load
