// Keeps roll-outs across restarts, in one JSON file, and looks after them while they run.
//
// Thread safety: belongs to one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gateway/rollout.h"

namespace tare::gateway {

class RolloutKeeper {
 public:
  explicit RolloutKeeper(std::filesystem::path file) : file_(std::move(file)) {}

  // Gives roll-outs not seen before what the file knows of them. A file that cannot be read, and
  // one saved under another policy, is said once and begun anew.
  void Adopt(const std::vector<std::shared_ptr<Rollout>>& rollouts);
  // Lets time pass for them, and writes what is new.
  void Tend(const std::vector<std::shared_ptr<Rollout>>& rollouts);

 private:
  const std::filesystem::path file_;
  std::set<std::weak_ptr<Rollout>, std::owner_less<std::weak_ptr<Rollout>>> known_;
  std::uint64_t saved_version_ = 0;  // the sum over the roll-outs
  std::set<std::string> decided_;    // models whose decision was said
  bool failed_ = false;              // a write failed and was said
};

}  // namespace tare::gateway
