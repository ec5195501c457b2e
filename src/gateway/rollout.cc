#include "gateway/rollout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "gateway/anytime.h"
#include "gateway/balance.h"

namespace tare::gateway {

namespace {

using nlohmann::json;
using std::chrono::system_clock;

constexpr std::size_t kBaseline = 0, kCanary = 1;
constexpr std::size_t kMaxRemembered = 100'000;
// Looking costs some microseconds a gate; promises hold however seldom one looks.
constexpr std::uint64_t kJudgeEvery = 20;
constexpr double kTail = 0.99;

// The r-th smallest value counted (r from 1), seconds: the side of its bucket that errs to safety.
double AtRank(const Histogram& histogram, std::uint64_t rank, bool upper) {
  if (rank == 0) return 0;
  if (rank > histogram.count()) return std::numeric_limits<double>::infinity();
  std::uint64_t below = 0;
  for (const Histogram::Bucket& bucket : histogram.NonEmptyBuckets()) {
    below += bucket.count;
    if (below >= rank) return static_cast<double>(upper ? bucket.high : bucket.low) * 1e-9;
  }
  return std::numeric_limits<double>::infinity();
}

Bounds TailBounds(const Histogram& histogram, double alpha) {
  const Ranks ranks = QuantileRanks(kTail, histogram.count(), alpha);
  return {AtRank(histogram, ranks.low, false), AtRank(histogram, ranks.high, true)};
}

// `worst` and `best`: by how much the canary may be worse, at the ends of the bounds.
GateReport Compare(const char* name, Bounds baseline, Bounds canary, bool enough, bool surely_good,
                   bool surely_bad) {
  GateReport gate{name,       GateVerdict::kUndecided, baseline.low, baseline.high, canary.low,
                  canary.high};
  if (!enough) {
    gate.verdict = GateVerdict::kNoData;
  } else if (surely_bad) {
    gate.verdict = GateVerdict::kFail;
  } else if (surely_good) {
    gate.verdict = GateVerdict::kPass;
  }
  return gate;
}

json ToJson(const Histogram& histogram) {
  json buckets = json::array();
  for (const Histogram::Bucket& bucket : histogram.NonEmptyBuckets()) {
    buckets.push_back({bucket.low, bucket.count});
  }
  return buckets;
}

void FromJson(const json& buckets, Histogram& histogram) {
  for (const json& bucket : buckets) {
    histogram.Add(bucket.at(0).get<std::int64_t>(), bucket.at(1).get<std::uint64_t>());
  }
}

json ToJson(const RolloutPolicy& policy) {
  const auto nanos = [](const std::optional<Nanos>& value) {
    return value ? json(value->count()) : json();
  };
  return {{"share", policy.share},
          {"alpha", policy.alpha},
          {"min_samples", policy.min_samples},
          {"max_duration_ns", policy.max_duration.count()},
          {"error_margin", policy.error_margin},
          {"ttft_p99_ns", nanos(policy.ttft_p99)},
          {"e2e_p99_ns", nanos(policy.e2e_p99)},
          {"feedback_gain", policy.feedback_gain ? json(*policy.feedback_gain) : json()}};
}

}  // namespace

const char* ToString(RolloutState state) {
  switch (state) {
    case RolloutState::kRunning:
      return "running";
    case RolloutState::kPromoted:
      return "promoted";
    case RolloutState::kRolledBack:
      return "rolled_back";
  }
  return "";
}

const char* ToString(GateVerdict verdict) {
  switch (verdict) {
    case GateVerdict::kNoData:
      return "no_data";
    case GateVerdict::kUndecided:
      return "undecided";
    case GateVerdict::kPass:
      return "pass";
    case GateVerdict::kFail:
      return "fail";
  }
  return "";
}

Rollout::Rollout(std::string model, RolloutPolicy policy, WallClock now)
    : model_(std::move(model)),
      policy_(policy),
      now_(now != nullptr ? std::move(now) : [] { return system_clock::now(); }),
      begun_(now_()) {}

RolloutState Rollout::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

bool Rollout::Assign(std::string_view request_id, std::string_view user, double draw) {
  const double place = user.empty() ? draw : StickyDraw(user, "rollout:" + model_);
  std::lock_guard lock(mutex_);
  if (state_ != RolloutState::kRunning) return state_ == RolloutState::kPromoted;
  const bool canary = place < policy_.share;
  std::string id(request_id);
  if (arm_of_.count(id) != 0) return canary;  // a client repeats its ids: the first keeps its arm
  remembered_.push_front(id);
  arm_of_.emplace(std::move(id), Remembered{remembered_.begin(), canary});
  if (arm_of_.size() > kMaxRemembered) {
    arm_of_.erase(remembered_.back());
    remembered_.pop_back();
  }
  return canary;
}

void Rollout::Observe(bool canary, const Outcome& outcome) {
  std::lock_guard lock(mutex_);
  if (state_ != RolloutState::kRunning) return;
  Arm& arm = arms_[canary ? kCanary : kBaseline];
  ++version_;
  ++arm.requests;
  if (outcome.failed) {
    ++arm.failed;
  } else {
    arm.ttft.Add(outcome.ttft.count());
    arm.e2e.Add(outcome.e2e.count());
  }
  if (arm.requests % kJudgeEvery == 0) JudgeLocked();
}

bool Rollout::Feedback(std::string_view request_id, int label) {
  std::lock_guard lock(mutex_);
  const auto found = arm_of_.find(std::string(request_id));
  if (found == arm_of_.end()) return false;
  Arm& arm = arms_[found->second.canary ? kCanary : kBaseline];
  // One label an answer.
  remembered_.erase(found->second.place);
  arm_of_.erase(found);
  if (state_ != RolloutState::kRunning) return true;
  ++version_;
  ++arm.labels;
  if (label > 0) ++arm.good;
  if (arm.labels % kJudgeEvery == 0) JudgeLocked();
  return true;
}

std::vector<GateReport> Rollout::Gates() const {
  const Arm& baseline = arms_[kBaseline];
  const Arm& canary = arms_[kCanary];
  const double alpha = policy_.alpha / 2;  // each arm's bounds may be wrong
  const bool enough = std::min(baseline.requests, canary.requests) >= policy_.min_samples;
  std::vector<GateReport> gates;
  {
    const Bounds b = RateBounds(baseline.failed, baseline.requests, alpha);
    const Bounds c = RateBounds(canary.failed, canary.requests, alpha);
    gates.push_back(Compare("error_rate", b, c, enough, c.high <= b.low + policy_.error_margin,
                            c.low > b.high + policy_.error_margin));
  }
  const auto tail = [&](const char* name, const std::optional<Nanos>& margin,
                        const Histogram& before, const Histogram& after) {
    if (!margin) return;
    const Bounds b = TailBounds(before, alpha);
    const Bounds c = TailBounds(after, alpha);
    const double allowed = ToSeconds(*margin);
    const bool some = std::min(before.count(), after.count()) >= policy_.min_samples;
    gates.push_back(Compare(name, b, c, some, c.high <= b.low + allowed, c.low > b.high + allowed));
  };
  tail("ttft_p99", policy_.ttft_p99, baseline.ttft, canary.ttft);
  tail("e2e_p99", policy_.e2e_p99, baseline.e2e, canary.e2e);
  if (policy_.feedback_gain) {
    const Bounds b = RateBounds(baseline.good, baseline.labels, alpha);
    const Bounds c = RateBounds(canary.good, canary.labels, alpha);
    const double factor = 1 + *policy_.feedback_gain;
    const bool some = std::min(baseline.labels, canary.labels) >= policy_.min_samples;
    gates.push_back(
        Compare("feedback", b, c, some, c.low >= b.high * factor, c.high < b.low * factor));
  }
  return gates;
}

double Rollout::RunningSeconds() const {
  return std::chrono::duration<double>(now_() - begun_).count();
}

void Rollout::JudgeLocked() {
  if (state_ != RolloutState::kRunning) return;
  const auto decide = [&](RolloutState state, std::string because) {
    state_ = state;
    because_ = std::move(because);
    ++version_;
  };
  std::string open;
  for (const GateReport& gate : Gates()) {
    if (gate.verdict == GateVerdict::kFail) {
      return decide(RolloutState::kRolledBack, gate.name + " is worse than its margin allows");
    }
    if (gate.verdict != GateVerdict::kPass) {
      open += (open.empty() ? "" : ", ") + gate.name + ": " + ToString(gate.verdict);
    }
  }
  if (open.empty()) return decide(RolloutState::kPromoted, "every gate passed");
  because_ = open;
  if (RunningSeconds() > ToSeconds(policy_.max_duration)) {
    decide(RolloutState::kRolledBack,
           fmt::format("no answer within {} ({})", FormatDuration(policy_.max_duration), open));
  }
}

void Rollout::Judge() {
  std::lock_guard lock(mutex_);
  JudgeLocked();
}

void Rollout::Decide(RolloutState state, std::string because) {
  std::lock_guard lock(mutex_);
  state_ = state;
  because_ = std::move(because);
  ++version_;
}

RolloutReport Rollout::Report() const {
  std::lock_guard lock(mutex_);
  return {model_,
          state_,
          because_,
          RunningSeconds(),
          arms_[kBaseline].requests,
          arms_[kCanary].requests,
          Gates()};
}

std::uint64_t Rollout::version() const {
  std::lock_guard lock(mutex_);
  return version_;
}

json Rollout::Save() const {
  std::lock_guard lock(mutex_);
  json arms = json::array();
  for (const Arm& arm : arms_) {
    arms.push_back({{"requests", arm.requests},
                    {"failed", arm.failed},
                    {"labels", arm.labels},
                    {"good", arm.good},
                    {"ttft", ToJson(arm.ttft)},
                    {"e2e", ToJson(arm.e2e)}});
  }
  return {{"model", model_},
          {"policy", ToJson(policy_)},
          {"state", ToString(state_)},
          {"because", because_},
          {"begun",
           std::chrono::duration_cast<std::chrono::seconds>(begun_.time_since_epoch()).count()},
          {"arms", arms}};
}

Status Rollout::Restore(const json& saved) {
  try {
    if (saved.at("policy") != ToJson(policy_)) {
      return Fail(ErrorKind::kInvalidArgument, "its policy has changed: the evidence begins anew");
    }
    std::array<Arm, 2> arms;
    for (std::size_t i = 0; i < arms.size(); ++i) {
      const json& from = saved.at("arms").at(i);
      from.at("requests").get_to(arms[i].requests);
      from.at("failed").get_to(arms[i].failed);
      from.at("labels").get_to(arms[i].labels);
      from.at("good").get_to(arms[i].good);
      FromJson(from.at("ttft"), arms[i].ttft);
      FromJson(from.at("e2e"), arms[i].e2e);
    }
    const auto state = saved.at("state").get<std::string>();
    std::lock_guard lock(mutex_);
    arms_ = std::move(arms);
    because_ = saved.at("because").get<std::string>();
    begun_ = system_clock::time_point(std::chrono::seconds(saved.at("begun").get<std::int64_t>()));
    state_ = state == ToString(RolloutState::kPromoted)     ? RolloutState::kPromoted
             : state == ToString(RolloutState::kRolledBack) ? RolloutState::kRolledBack
                                                            : RolloutState::kRunning;
  } catch (const json::exception& error) {
    return Fail(ErrorKind::kCorrupt, "a saved roll-out cannot be read: {}", error.what());
  }
  return {};
}

}  // namespace tare::gateway
