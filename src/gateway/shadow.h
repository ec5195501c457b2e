// Shadow traffic: a copy of some requests goes to another target, whose answers nobody gets.
//
// A copy starts after its request's own first attempt, never waits in a line, and is left out
// ("skipped") when its target is full or kept from traffic, when requests wait for room, or when
// `max_concurrent` copies run: it takes nothing a request could have had. How it ends changes
// neither breakers nor roll-outs, only the comparison here: how many answered, and over the pairs
// of which both did, who was faster and whether they wrote the same.
//
// Thread safety: ShadowStats may be read from any thread; everything else belongs to the loop's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gateway/attempt.h"

namespace tare::gateway {

struct ShadowPolicy {
  double share = 0.1;      // of requests
  int max_concurrent = 8;  // copies at a time
  bool operator==(const ShadowPolicy&) const = default;
};

struct ShadowReport {
  std::string model;
  std::uint64_t answered = 0, failed = 0;  // copies that ended
  std::uint64_t skipped = 0;
  std::uint64_t cancelled = 0;  // the client of the request left
  int running = 0;
  // Pairs of which both answered.
  std::uint64_t same = 0, different = 0;  // in what they wrote
  struct Side {
    double ttft_s = 0, e2e_s = 0;  // sums
    std::uint64_t tokens = 0;      // written
  };
  Side request, copy;
};

// One of the two answers, as far as it has come.
class ShadowSide {
 public:
  explicit ShadowSide(Nanos begun) : begun_(begun) {}
  void Add(const api::ChatChunk& chunk, Nanos now);
  // The answer begins anew, at another target.
  void Reset();
  void End(bool answered, Nanos now);

  bool ended() const { return ended_; }
  bool answered() const { return answered_; }
  double ttft_s() const { return ToSeconds(first_token_ - begun_); }
  double e2e_s() const { return ToSeconds(end_ - begun_); }
  std::uint64_t tokens() const { return tokens_; }
  bool WroteTheSame(const ShadowSide& other) const { return texts_ == other.texts_; }

 private:
  const Nanos begun_;
  Nanos first_token_{}, end_{};
  bool ended_ = false, answered_ = false;
  std::uint64_t tokens_ = 0;
  std::vector<std::uint64_t> texts_;  // a hash of what each choice wrote
};

class ShadowStats {
 public:
  void Skip() { skipped_.fetch_add(1); }
  void Begin() { running_.fetch_add(1); }
  // The copy ended; `answered` null: it was cancelled.
  void End(const bool* answered);
  void Compare(const ShadowSide& request, const ShadowSide& copy);
  int running() const { return running_.load(); }
  ShadowReport Report(const std::string& model) const;

 private:
  struct Side {
    std::atomic<std::int64_t> ttft_ns{0}, e2e_ns{0};
    std::atomic<std::uint64_t> tokens{0};
    void Add(const ShadowSide& side);
    ShadowReport::Side Report() const;
  };
  std::atomic<std::uint64_t> answered_{0}, failed_{0}, skipped_{0}, cancelled_{0};
  std::atomic<std::uint64_t> same_{0}, different_{0};
  std::atomic<int> running_{0};
  Side request_, copy_;
};

// A request's answer and its copy's. The request's job and the copy hold it.
struct ShadowPair {
  ShadowPair(std::shared_ptr<ShadowStats> to, Nanos begun)
      : stats(std::move(to)), request(begun), copy(begun) {}
  // To be called when a side ended.
  void CompareWhenBothEnded() {
    if (request.answered() && copy.answered()) stats->Compare(request, copy);
  }
  const std::shared_ptr<ShadowStats> stats;
  ShadowSide request, copy;
};

// The copy under way. Destroying it cancels it.
class ShadowCopy final : public AttemptSink {
 public:
  // `ended` is called once at most, from inside the attempt: the copy is to be destroyed soon.
  // `over` is called when it is destroyed.
  ShadowCopy(std::shared_ptr<ShadowPair> pair, std::function<void()> ended,
             std::function<void()> over);
  ~ShadowCopy() override;
  void Start(Origin& origin, std::shared_ptr<const api::ChatRequest> request,
             const std::string& model);

  void OnChunk(api::ChatChunk chunk) override;
  void OnComplete(const api::Usage& usage) override;
  void OnFailure(Failure failure) override;

 private:
  void End(bool answered);

  const std::shared_ptr<ShadowPair> pair_;
  const std::function<void()> ended_, over_;
  std::unique_ptr<Attempt> attempt_;
};

}  // namespace tare::gateway
