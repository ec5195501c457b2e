// A canary: a share of a model's requests goes to a new target, and the evidence decides by itself
// whether it takes over.
//
// Both arms are measured at the same time, so that a busy hour hits both. Every gate compares the
// arms by bounds that hold at every moment (anytime.h): it passes when the canary is surely no
// worse than its margin allows, fails when it surely is, and is undecided between; "no data" (less
// than min_samples in an arm) is a state of its own and never a pass. All gates passed: promoted.
// One failed, or max_duration over without an answer: rolled back. A canary that breaks a gate is
// promoted with a probability of at most alpha however often one looks.
//
// Stickiness: with a `user` in the request the arm is a function of the user, else it is drawn.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/histogram.h"
#include "base/result.h"
#include "base/types.h"

namespace tare::gateway {

struct RolloutPolicy {
  double share = 0.1;  // of requests that go to the canary
  double alpha = 0.05;
  std::uint64_t min_samples = 200;  // in each arm
  Nanos max_duration = std::chrono::hours(24);
  // Gates. The canary's error rate may be this much above the baseline's (absolute).
  double error_margin = 0.01;
  std::optional<Nanos> ttft_p99;  // its P99 may be this much above; absent: no gate
  std::optional<Nanos> e2e_p99;
  std::optional<double> feedback_gain;  // its share of good labels is this much above (relative)
  bool operator==(const RolloutPolicy&) const = default;
};

enum class RolloutState { kRunning, kPromoted, kRolledBack };
const char* ToString(RolloutState state);
enum class GateVerdict { kNoData, kUndecided, kPass, kFail };
const char* ToString(GateVerdict verdict);

struct GateReport {
  std::string name;  // error_rate, ttft_p99, e2e_p99, feedback
  GateVerdict verdict = GateVerdict::kNoData;
  // The bounds of each arm: a rate, or seconds. An absent upper bound is infinite.
  double baseline_low = 0, baseline_high = 0, canary_low = 0, canary_high = 0;
};

struct RolloutReport {
  std::string model;
  RolloutState state = RolloutState::kRunning;
  std::string because;
  double running_s = 0;
  std::uint64_t baseline_samples = 0, canary_samples = 0;
  std::vector<GateReport> gates;
};

class Rollout {
 public:
  using WallClock = std::function<std::chrono::system_clock::time_point()>;
  // `now` null: the system's clock.
  Rollout(std::string model, RolloutPolicy policy, WallClock now = nullptr);

  const RolloutPolicy& policy() const { return policy_; }
  RolloutState state() const;
  // Whether this request goes to the canary; `draw` is uniform in (0, 1), for requests without a
  // user. The request is remembered, so that feedback finds its arm.
  bool Assign(std::string_view request_id, std::string_view user, double draw);

  struct Outcome {
    bool failed = false;
    Nanos ttft{};  // of answers that did not fail
    Nanos e2e{};
  };
  void Observe(bool canary, const Outcome& outcome);
  // A label for an answer: 1 good, 0 neutral, -1 bad. False when the request is not known (any
  // more).
  bool Feedback(std::string_view request_id, int label);
  // Looks at the clock too: to be called now and then.
  void Judge();
  // By hand, over the evidence.
  void Decide(RolloutState state, std::string because);

  RolloutReport Report() const;
  // All it knows but the remembered requests. Restore refuses what was saved under another policy.
  nlohmann::json Save() const;
  Status Restore(const nlohmann::json& saved);
  // Counts decisions and observations: unchanged means there is nothing new to save.
  std::uint64_t version() const;

 private:
  struct Arm {
    std::uint64_t requests = 0, failed = 0;
    std::uint64_t labels = 0, good = 0;
    Histogram ttft{7}, e2e{7};
  };
  std::vector<GateReport> Gates() const;
  void JudgeLocked();
  double RunningSeconds() const;

  const std::string model_;
  const RolloutPolicy policy_;
  const WallClock now_;

  mutable std::mutex mutex_;  // guards the rest
  RolloutState state_ = RolloutState::kRunning;
  std::string because_;
  std::chrono::system_clock::time_point begun_;
  std::array<Arm, 2> arms_;  // baseline, canary
  std::uint64_t version_ = 0;
  std::list<std::string> remembered_;  // newest first
  struct Remembered {
    std::list<std::string>::iterator place;
    bool canary = false;
  };
  std::unordered_map<std::string, Remembered> arm_of_;
};

}  // namespace tare::gateway
