// One replica in virtual time: the engine's own Scheduler, and an executor that tells how long each
// of its steps takes.
//
// A step is planned at the moment the one before has ended and sees everything submitted by then.
// Stretches in which the running sequences only decode are taken at once (Scheduler::
// AdvanceDecodes): the times of the single steps are still computed one by one, so the result is
// the same to the nanosecond (replica_test.cc), only sooner.
//
// Ownership: owns scheduler and executor; the observer is the caller's and must outlive it.
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/scheduler.h"
#include "sim/request.h"
#include "sim/roofline_executor.h"

namespace tare::sim {

// An answer being made, as the replica sees it.
struct Answer {
  SimRequest request;
  Nanos submitted{};
  Nanos first_token{};  // 0: none yet
  Nanos last_token{};
  Nanos longest_gap{};
  int tokens = 0;
  int cached_tokens = 0;
  bool measured = true;  // the observer's: belongs to the measured window
};

class ReplicaObserver {
 public:
  virtual ~ReplicaObserver() = default;
  // `count` tokens came at `at`, each `gap` after the one before of its answer, `measured` of them
  // of measured answers.
  virtual void OnTokens(Nanos at, std::uint64_t count, Nanos gap, std::uint64_t measured) = 0;
  // An answer's first token.
  virtual void OnFirstToken(Nanos at) = 0;
  virtual void OnEnd(const Answer& answer) = 0;
};

struct ReplicaOptions {
  engine::SchedulerOptions scheduler;
  bool fast_forward = true;  // off: every step by itself; only tests have a reason
};

class Replica {
 public:
  static Result<Replica> Create(const ReplicaOptions& options, std::shared_ptr<const StepTime> time,
                                ReplicaObserver& observer);

  // Fails when the prompt can never fit. `at` is not before the last AdvanceTo.
  Status Submit(SimRequest request, Nanos at, bool measured);

  // Everything up to `until`: steps are planned before it and end at or before it. With
  // `stop_at_end` it returns as soon as an answer has ended. The time it came to.
  Nanos AdvanceTo(Nanos until, bool stop_at_end);

  // The next moment something happens by itself; Nanos::max() when idle.
  Nanos NextEvent() const;

  // Takes out what has not ended: for a replica that fails.
  std::vector<Answer> Abandon();

  std::size_t in_system() const { return answers_.size(); }
  engine::SchedulerStats Stats() const { return scheduler_.Stats(); }
  std::uint32_t pages_used() const { return scheduler_.pages_used(); }
  std::uint64_t steps() const { return steps_; }
  double busy_seconds() const { return busy_seconds_; }

 private:
  Replica(const ReplicaOptions& options, engine::Scheduler scheduler,
          std::shared_ptr<const StepTime> time, ReplicaObserver& observer)
      : options_(options),
        scheduler_(std::move(scheduler)),
        executor_(std::move(time)),
        observer_(&observer) {}

  void PlanStep();
  bool CommitStep();  // true when an answer ended
  bool FastForward(Nanos until);
  void EndSkippedStep();

  ReplicaOptions options_;
  engine::Scheduler scheduler_;
  RooflineExecutor executor_;
  ReplicaObserver* observer_;
  std::unordered_map<std::uint64_t, Answer> answers_;  // by sequence
  std::uint64_t next_sequence_ = 1;
  Nanos ready_at_{};  // when the next step is planned, unless one is in flight
  // The step in flight: planned, or one of those AdvanceDecodes has already taken.
  bool in_flight_ = false;
  bool skipped_ = false;
  Nanos began_{}, ends_{};
  engine::StepPlan plan_;
  // Answers that got a token in the step that ended last and go on, and their sums.
  std::vector<Answer*> going_on_;
  std::uint64_t going_on_measured_ = 0;
  double context_ = 0;  // tokens they will have read in the coming step, themselves included
  std::uint64_t steps_ = 0;
  double busy_seconds_ = 0;
};

}  // namespace tare::sim
