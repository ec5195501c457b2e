// Sinks for tests: one that keeps everything and can be waited for, one that holds the engine up.
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/generate.h"

namespace tare::engine {

class CollectingSink final : public GenerateSink {
 public:
  struct Choice {
    std::string text;
    std::vector<TokenId> tokens;
    std::vector<GeneratedToken> details;
    FinishReason finish = FinishReason::kNone;
  };

  void OnTokens(GenerateChunk chunk) override {
    std::lock_guard lock(mutex_);
    Choice& choice = choices_[chunk.choice];
    choice.text += chunk.text;
    for (GeneratedToken& token : chunk.tokens) {
      choice.tokens.push_back(token.id);
      choice.details.push_back(std::move(token));
    }
    choice.finish = chunk.finish;
    ++chunks_;
    changed_.notify_all();
  }
  void OnDone(const GenerateUsage& usage) override {
    std::lock_guard lock(mutex_);
    usage_ = usage;
    ++terminal_calls_;
    changed_.notify_all();
  }
  void OnError(Error error) override {
    std::lock_guard lock(mutex_);
    error_ = std::move(error);
    ++terminal_calls_;
    changed_.notify_all();
  }

  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return terminal_calls_ > 0; });
  }
  void WaitForChunks(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return chunks_ >= count || terminal_calls_ > 0; });
  }

  // Valid after Wait.
  const Choice& choice(int index = 0) { return choices_[index]; }
  const std::vector<TokenId>& tokens(int index = 0) { return choices_[index].tokens; }
  const GenerateUsage& usage() const { return *usage_; }
  const std::optional<Error>& error() const { return error_; }
  int terminal_calls() const { return terminal_calls_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Choice> choices_;
  std::optional<GenerateUsage> usage_;
  std::optional<Error> error_;
  int chunks_ = 0;
  int terminal_calls_ = 0;
};

// Holds the step thread at its first tokens until it is let go.
class HoldingSink final : public GenerateSink {
 public:
  void OnTokens(GenerateChunk) override {
    if (std::exchange(held_, true)) return;
    reached.set_value();
    go_on.get_future().wait();
  }
  void OnDone(const GenerateUsage&) override {}
  void OnError(Error) override {}

  std::promise<void> reached, go_on;

 private:
  bool held_ = false;
};

}  // namespace tare::engine
