// A local engine as a target of the router: its answers are carried to the routing loop's thread.
//
// Thread safety: Start and the attempt belong to the loop's thread.
#pragma once

#include <memory>
#include <string>

#include "gateway/attempt.h"
#include "gateway/upstream.h"
#include "net/event_loop.h"

namespace tare::gateway {

class LocalOrigin final : public Origin {
 public:
  LocalOrigin(std::shared_ptr<Upstream> upstream, std::shared_ptr<net::EventLoop::Mailbox> mailbox);
  std::unique_ptr<Attempt> Start(std::shared_ptr<const api::ChatRequest> request,
                                 const std::string& model, AttemptSink* sink) override;

 private:
  const std::shared_ptr<Upstream> upstream_;
  const std::shared_ptr<net::EventLoop::Mailbox> mailbox_;
};

}  // namespace tare::gateway
