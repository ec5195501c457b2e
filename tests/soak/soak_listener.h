// Hears one answer of a soak, and sees to it that it ends exactly once.
//
// Thread safety: the engine calls On… from its thread; the rest from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "soak_world.h"

namespace tare::engine::soak {

// What became of a world's requests. Outlives its listeners.
struct Ledger {
  std::atomic<std::int64_t> open{0};
  std::atomic<std::uint64_t> answers{0}, cancelled{0}, failed{0}, refused{0}, repeated{0};
  std::atomic<std::uint64_t> adapters{0}, vectors{0};
};

// What a client has heard of one choice.
struct Heard {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  bool operator==(const Heard&) const = default;
};

class Listener final : public GenerateSink {
 public:
  // With `expected`, the answer has to be that one.
  Listener(Ledger& ledger, int choices, const std::vector<Heard>* expected = nullptr)
      : ledger_(ledger), expected_(expected), heard_(static_cast<std::size_t>(choices)) {
    ++ledger_.open;
  }
  ~Listener() override {
    if (!ended_) Fatal("a request was let go of without an end");
  }
  void OnTokens(GenerateChunk chunk) override {
    if (ended_) Fatal("tokens after the end");
    Heard& heard = heard_[static_cast<std::size_t>(chunk.choice)];
    if (heard.finish != FinishReason::kNone) Fatal("tokens after a choice's last chunk");
    for (const GeneratedToken& token : chunk.tokens) {
      heard.tokens.push_back(token.id);
      heard.logprobs.push_back(token.logprob);
    }
    heard.text += chunk.text;
    heard.finish = chunk.finish;
    tokens_ += chunk.tokens.size();
  }
  void OnDone(const GenerateUsage&) override {
    bool cancelled = false;
    for (const Heard& heard : heard_) {
      if (heard.finish == FinishReason::kNone) Fatal("an answer ended before its choices did");
      cancelled = cancelled || heard.finish == FinishReason::kCancelled;
    }
    if (cancelled) {
      ++ledger_.cancelled;
    } else if (expected_ != nullptr) {
      if (heard_ != *expected_) Fatal("a request has got another answer than the first time");
      ++ledger_.repeated;
    }
    End();
  }
  void OnError(Error) override {
    ++ledger_.failed;
    End();
  }

  // The engine did not take the request.
  void NeverAccepted() {
    ended_ = true;
    ++ledger_.refused;
    --ledger_.open;
  }
  std::size_t tokens() const { return tokens_; }
  bool ended() const { return ended_; }
  const std::vector<Heard>& heard() const { return heard_; }  // once ended

 private:
  void End() {
    if (ended_.exchange(true)) Fatal("a request ended twice");
    ++ledger_.answers;
    --ledger_.open;
  }
  Ledger& ledger_;
  const std::vector<Heard>* expected_;
  std::vector<Heard> heard_;
  std::atomic<std::size_t> tokens_{0};
  std::atomic<bool> ended_{false};
};

}  // namespace tare::engine::soak
