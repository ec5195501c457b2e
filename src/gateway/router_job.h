// One request on its way through its route's targets. Internal to the router.
//
// Thread safety: lives on the loop's thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "gateway/continuation.h"
#include "gateway/prefix_index.h"
#include "gateway/router_plan.h"
#include "net/event_loop.h"

namespace tare::gateway {

class Job;

// What the jobs of a router share.
struct JobHome {
  net::EventLoop* loop = nullptr;
  RetryBudget budget;
  PrefixIndex prefixes;
  std::minstd_rand random{std::random_device{}()};
  std::unordered_map<std::uint64_t, std::unique_ptr<Job>> jobs;
  // Lines jobs may wait in, of plans old and new; those nobody uses any more are dropped.
  std::vector<std::weak_ptr<WaitingLine>> lines;
  bool serving_lines = false;
  int waiting = 0;                                                        // jobs in a line
  std::unordered_map<std::uint64_t, std::unique_ptr<ShadowCopy>> copies;  // by the job's id

  double Random() { return std::uniform_real_distribution<double>(0, 1)(random); }
  // A slot became free: lets waiting jobs have it, in a task of its own.
  void ServeLines();
};

class Job final : public AttemptSink {
 public:
  Job(JobHome* home, std::uint64_t id, std::shared_ptr<const Plan> plan, const Route* route,
      std::shared_ptr<const api::ChatRequest> request, std::shared_ptr<ChatSink> sink);
  ~Job() override;

  void Begin();
  void ClientLeft();
  // The router goes away.
  void Stop();
  // Out of the waiting line; false when there is still no room.
  bool TryPlace();

  void OnChunk(api::ChatChunk chunk) override;
  void OnComplete(const api::Usage& usage) override;
  void OnFailure(Failure failure) override;

 private:
  enum class Place { kStarted, kBusy, kNone };

  const Target& At() const { return route_->targets[order_[position_]]; }
  Server& Current() { return *At().server; }
  const std::string& AnsweringModel() const;
  void Order();
  // Tells the roll-out how the attempt at this request's own arm ended.
  void TellRollout(bool failed);
  void StartCopy();
  void EndPair(bool answered);
  void DropCopy();
  Place FindPlace(std::size_t from);
  void NextTarget(std::size_t from);
  void Wait(std::size_t from);
  void LeaveLine();
  void WaitedTooLong();
  void StartAttempt();
  void EndAttempt();
  void Discharge(std::int64_t tokens);
  void Judge(const Failure& failure);
  void GiveUp(Error error);
  // After a cut: whether another upstream goes on with the answer.
  bool ContinueElsewhere();
  void GiveUpBusy(const char* why);
  void Settle();
  void Erase();

  JobHome* const home_;
  const std::uint64_t id_;
  const std::shared_ptr<const Plan> plan_;
  const Route* const route_;
  const std::shared_ptr<const api::ChatRequest> request_;
  const std::shared_ptr<ChatSink> sink_;
  std::vector<std::size_t> order_;  // targets, first choice first
  std::size_t position_ = 0;        // in order_
  std::vector<std::uint64_t> prefix_;
  std::shared_ptr<ShadowPair> pair_;  // null: no copy was made
  bool in_rollout_ = false;           // its arm waits for an outcome
  bool canary_ = false;
  Nanos begun_{};  // of its first attempt
  Nanos first_token_at_{};
  int attempts_ = 0;  // on this target
  std::unique_ptr<Attempt> attempt_;
  net::EventLoop::TimerId timer_;
  bool waiting_ = false;  // in the route's line
  bool delivered_ = false;
  bool first_token_ = false;        // of this attempt
  std::int64_t prompt_tokens_ = 0;  // estimated
  std::int64_t charged_ = 0;        // tokens outstanding at the current server
  int needed_len_ = 0;              // only targets with more context than this
  std::vector<api::ChatChunk> held_;
  Continuation continuation_;                     // of a stream that may go on elsewhere
  std::optional<Error> cut_;                      // what cut it first
  std::vector<std::size_t> continued_at_;         // positions that had their try
  std::shared_ptr<const api::ChatRequest> rest_;  // the request of what is left; null: not cut
  std::optional<Error> last_;
};

}  // namespace tare::gateway
