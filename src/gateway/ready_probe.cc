#include "gateway/ready_probe.h"

#include <utility>

#include "base/log.h"

namespace tare::gateway {

namespace {

constexpr Nanos kPause = std::chrono::seconds(1);
// Past every target: a channel that is not ready by then is noted as a miss.
constexpr Nanos kGiveUp = std::chrono::minutes(10);

std::shared_ptr<const api::ChatRequest> OneToken(const std::string& model) {
  auto request = std::make_shared<api::ChatRequest>();
  request->id = "readiness";
  request->model = model;
  request->messages_json = R"([{"role":"user","content":"Hi"}])";
  request->wire_body = R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":1})";
  request->max_tokens = 1;
  request->stream = true;
  return request;
}

}  // namespace

ReadyProbe::ReadyProbe(Question question, net::EventLoop* loop,
                       std::shared_ptr<Readiness> readiness, std::function<void()> over)
    : question_(std::move(question)),
      loop_(loop),
      readiness_(std::move(readiness)),
      over_(std::move(over)) {}

ReadyProbe::~ReadyProbe() {
  if (timer_.serial != 0) loop_->CancelTimer(timer_);
}

void ReadyProbe::Ask() {
  timer_ = {};
  attempt_ = question_.origin->Start(OneToken(question_.model), question_.model, this);
}

void ReadyProbe::OnComplete(const api::Usage&) { End(true); }

void ReadyProbe::OnFailure(Failure failure) {
  const Nanos now = net::MonotonicNow();
  if (now - question_.asked >= kGiveUp) {
    LogWarn("the {} channel of {} did not become ready: {}", ToString(question_.channel),
            question_.what, failure.error.message);
    return End(false);
  }
  timer_ = loop_->RunAt(now + kPause, [this] { Ask(); });
}

void ReadyProbe::End(bool ready) {
  readiness_->Note(question_.channel, ready, net::MonotonicNow() - question_.asked, question_.what);
  over_();
}

}  // namespace tare::gateway
