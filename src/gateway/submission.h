// From a call's handle to the engine or embedder that computes it, for whoever may outlive either.
//
// What a step thread holds must not own the object that runs it (whose destructor joins that
// thread), so a Door points to it until it is closed. A Submission is shared by the call's handle
// and the task that submits it, whichever comes first.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "base/result.h"
#include "gateway/upstream.h"

namespace tare::gateway {

// `Target` has Submit(...), which returns Result<Handle>, and Cancel(Handle).
template <typename Target, typename Handle>
class Door {
 public:
  explicit Door(Target* target) : target_(target) {}

  // Waits for calls that are passing.
  void Close() {
    std::unique_lock lock(mutex_);
    target_ = nullptr;
  }
  template <typename... Arguments>
  Result<Handle> Submit(Arguments&&... arguments) {
    std::shared_lock lock(mutex_);
    if (target_ == nullptr) return Fail(ErrorKind::kUnavailable, "the model is being unloaded");
    return target_->Submit(std::forward<Arguments>(arguments)...);
  }
  void Cancel(Handle handle) {
    std::shared_lock lock(mutex_);
    if (target_ != nullptr) target_->Cancel(handle);
  }

 private:
  std::shared_mutex mutex_;
  Target* target_;
};

template <typename Target, typename Handle>
class Submission {
 public:
  explicit Submission(std::shared_ptr<Door<Target, Handle>> door) : door_(std::move(door)) {}

  template <typename... Arguments>
  Status Submit(Arguments&&... arguments) {
    std::lock_guard lock(mutex_);
    if (cancelled_) return Fail(ErrorKind::kCancelled, "the client left before the start");
    TARE_TRY(handle_, door_->Submit(std::forward<Arguments>(arguments)...));
    return {};
  }
  void Cancel() {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (handle_) door_->Cancel(*handle_);
  }

 private:
  const std::shared_ptr<Door<Target, Handle>> door_;
  std::mutex mutex_;
  std::optional<Handle> handle_;
  bool cancelled_ = false;
};

// The call's handle; letting go of it cancels.
template <typename Target, typename Handle>
class SubmittedCall final : public ChatCall {
 public:
  explicit SubmittedCall(std::shared_ptr<Submission<Target, Handle>> submission)
      : submission_(std::move(submission)) {}
  ~SubmittedCall() override { submission_->Cancel(); }
  void Cancel() override { submission_->Cancel(); }

 private:
  const std::shared_ptr<Submission<Target, Handle>> submission_;
};

}  // namespace tare::gateway
