// Finds out when a new target is ready: asks it for one token again and again until it answers, and
// notes how long that took since the configuration that brought it was asked for.
//
// Thread safety: belongs to the loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gateway/attempt.h"
#include "gateway/readiness.h"
#include "net/event_loop.h"

namespace tare::gateway {

class ReadyProbe final : public AttemptSink {
 public:
  struct Question {
    Channel channel = Channel::kCanary;
    Origin* origin = nullptr;  // outlives the probe
    std::string model;         // the upstream's name for it
    std::string what;          // for the report
    Nanos asked{};
  };
  // `over` is called once, from inside the attempt: the probe is to be destroyed soon.
  ReadyProbe(Question question, net::EventLoop* loop, std::shared_ptr<Readiness> readiness,
             std::function<void()> over);
  ~ReadyProbe() override;
  void Ask();

  void OnChunk(api::ChatChunk) override {}
  void OnComplete(const api::Usage& usage) override;
  void OnFailure(Failure failure) override;

 private:
  void End(bool ready);

  const Question question_;
  net::EventLoop* const loop_;
  const std::shared_ptr<Readiness> readiness_;
  const std::function<void()> over_;
  std::unique_ptr<Attempt> attempt_;
  net::EventLoop::TimerId timer_;
};

}  // namespace tare::gateway
