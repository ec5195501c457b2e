// A server started for one measurement and stopped after it: `tare serve` on a port of its own.
//
// The child leads its own process group, writes its log to a file, and says on it where it listens
// ("listening http://127.0.0.1:PORT"). It never outlives its owner: the destructor stops it, and
// the kernel kills it when the thread that started it ends by any means (PR_SET_PDEATHSIG), so
// Start belongs on a thread that lives as long as the server is wanted.
//
// Ownership: one object, one process. Thread safety: none; Stop may be called more than once.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace tare::advise {

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

  LocalServer(LocalServer&& other) noexcept;
  LocalServer& operator=(LocalServer&& other) noexcept;
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;
  ~LocalServer();

  const std::string& url() const { return url_; }  // "http://127.0.0.1:43210"
  int pid() const { return pid_; }
  // From the start of the process to the first 200 of /ready.
  Nanos time_to_ready() const { return time_to_ready_; }
  bool running();
  // `what`, how the process ended (once it has), and the last lines of its log.
  std::string DescribeEnd(const std::string& what) const;

  // SIGTERM to the group, then SIGKILL after the drain time. Fails when it had to kill, or when the
  // server had died before (with the end of its log).
  Status Stop();

 private:
  LocalServer() = default;
  Status WaitUntilReady(const LocalServerOptions& options);
  // Waits for the child at most `limit`; true when it is gone (status in exit_status_).
  bool WaitForExit(Nanos limit);
  void Kill();

  int pid_ = -1;  // -1: reaped or never started
  int exit_status_ = 0;
  std::string program_;
  std::string url_;
  std::filesystem::path log_;
  Nanos time_to_ready_{0};
  Nanos drain_timeout_{0};
};

}  // namespace tare::advise
