#include "gateway/local_origin.h"

#include <utility>

namespace tare::gateway {

namespace {

// Where the engine's calls land on the loop's thread; null once the attempt is gone.
struct Door {
  AttemptSink* sink = nullptr;
};

class Carrier final : public ChatSink {
 public:
  Carrier(std::shared_ptr<Door> door, std::shared_ptr<net::EventLoop::Mailbox> mailbox)
      : door_(std::move(door)), mailbox_(std::move(mailbox)) {}

  void OnChunk(api::ChatChunk chunk) override {
    Carry([chunk = std::make_shared<api::ChatChunk>(std::move(chunk))](AttemptSink& sink) {
      sink.OnChunk(std::move(*chunk));
    });
  }
  void OnDone(const api::Usage& usage) override {
    Carry([usage](AttemptSink& sink) { sink.OnComplete(usage); });
  }
  void OnError(Error error) override {
    Carry([error = std::move(error)](AttemptSink& sink) {
      Failure failure;
      failure.error = error;
      sink.OnFailure(std::move(failure));
    });
  }

 private:
  template <typename F>
  void Carry(F deliver) {
    mailbox_->Post([door = door_, deliver = std::move(deliver)] {
      if (door->sink != nullptr) deliver(*door->sink);
    });
  }

  const std::shared_ptr<Door> door_;
  const std::shared_ptr<net::EventLoop::Mailbox> mailbox_;
};

class LocalAttempt final : public Attempt {
 public:
  LocalAttempt(std::shared_ptr<Door> door, std::unique_ptr<ChatCall> call)
      : door_(std::move(door)), call_(std::move(call)) {}
  ~LocalAttempt() override { door_->sink = nullptr; }

 private:
  const std::shared_ptr<Door> door_;
  const std::unique_ptr<ChatCall> call_;  // cancels when destroyed
};

}  // namespace

LocalOrigin::LocalOrigin(std::shared_ptr<Upstream> upstream,
                         std::shared_ptr<net::EventLoop::Mailbox> mailbox)
    : upstream_(std::move(upstream)), mailbox_(std::move(mailbox)) {}

std::unique_ptr<Attempt> LocalOrigin::Start(std::shared_ptr<const api::ChatRequest> request,
                                            const std::string& model, AttemptSink* sink) {
  auto door = std::make_shared<Door>(Door{sink});
  auto carrier = std::make_shared<Carrier>(door, mailbox_);
  api::ChatRequest named = *request;
  named.model = request->adapter.empty() ? model : model + ':' + request->adapter;
  named.wire_body.clear();
  auto call = upstream_->Chat(std::move(named), carrier);
  if (!call) {
    carrier->OnError(std::move(call).error());
    return std::make_unique<LocalAttempt>(std::move(door), nullptr);
  }
  return std::make_unique<LocalAttempt>(std::move(door), std::move(*call));
}

}  // namespace tare::gateway
