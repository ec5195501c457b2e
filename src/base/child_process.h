// A program started for as long as we want it and no longer.
//
// It leads its own process group and never outlives its owner: the destructor ends it, and the
// kernel kills it when the thread that started it ends by any means (PR_SET_PDEATHSIG), so Start
// belongs on a thread that lives as long as the child is wanted.
//
// Ownership: one object, one process. Thread safety: none; Stop may be called more than once.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace tare {

class ChildProcess {
 public:
  // `command`: program (a path, or looked up in PATH) and its arguments. stdout and stderr go to
  // `log`, which is replaced; with an empty path stdout is discarded and stderr is ours. A program
  // that cannot be run is an error here.
  static Result<ChildProcess> Start(const std::vector<std::string>& command,
                                    const std::filesystem::path& log = {});
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  int pid() const { return pid_; }  // -1: gone
  bool Running();
  // Waits at most `limit`; true when it is gone, and with it what it left in its group.
  bool WaitForExit(Nanos limit);
  // SIGTERM to the group, SIGKILL after `patience`; false when it took that.
  bool Stop(Nanos patience);
  void Kill();
  // "exit code 3" or "signal 9", once it is gone; "an unknown end" where somebody else waited for
  // it.
  std::string HowItEnded() const;

 private:
  explicit ChildProcess(int pid) : pid_(pid) {}

  void Reap();

  int pid_ = -1;
  std::optional<int> exit_status_;  // none: it is not known how it ended
};

}  // namespace tare
