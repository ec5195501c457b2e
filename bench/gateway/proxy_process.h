// A proxy under test, run as a process of its own, and what it takes: CPU time and memory.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "base/result.h"

namespace tare::bench {

class ProxyProcess {
 public:
  // Waits until `ready_url` answers 200. Output goes to `log_file`.
  static Result<std::unique_ptr<ProxyProcess>> Start(const std::vector<std::string>& command,
                                                     const std::string& ready_url,
                                                     const std::string& log_file);

  // User and system time of the process and its children that live, seconds.
  double CpuSeconds() const;
  double RssMiB() const;

 private:
  explicit ProxyProcess(ChildProcess process) : process_(std::move(process)) {}
  std::vector<pid_t> Processes() const;
  ChildProcess process_;
};

// A port that was free a moment ago.
int FreePort();

}  // namespace tare::bench
