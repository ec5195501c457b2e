// Sinks for callers that have nothing to do until the answer is there: benchmarks, `tare generate`.
//
// Thread safety: the engine calls On… from its thread, one other thread waits.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "engine/generate.h"

namespace tare::engine {

// Derived classes say what becomes of tokens.
class WaitingSink : public GenerateSink {
 public:
  void OnTokens(GenerateChunk) override {}
  void OnDone(const GenerateUsage& usage) final {
    usage_ = usage;
    Finish();
  }
  void OnError(Error error) final {
    error_ = std::move(error);
    Finish();
  }

  // Returns when the request has ended, with its error if it failed.
  Status Wait() {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return done_; });
    if (error_) return tl::unexpected(*error_);
    return {};
  }
  const GenerateUsage& usage() const { return usage_; }  // valid after Wait

 private:
  void Finish() {
    std::lock_guard lock(mutex_);
    done_ = true;
    finished_.notify_one();
  }

  GenerateUsage usage_;
  std::optional<Error> error_;
  std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;
};

// Keeps the time of every token.
class TimingSink final : public WaitingSink {
 public:
  explicit TimingSink(const Clock& clock) : clock_(clock) {}
  void OnTokens(GenerateChunk chunk) override {
    times_.insert(times_.end(), chunk.tokens.size(), clock_.Now());
  }
  const std::vector<Nanos>& times() const { return times_; }  // valid after Wait

 private:
  const Clock& clock_;
  std::vector<Nanos> times_;
};

}  // namespace tare::engine
