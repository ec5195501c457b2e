#include "load/server_process.h"

#include <thread>
#include <utility>

#include "load/server_memory.h"
#include "net/event_loop.h"
#include "net/http_client.h"

namespace tare::load {
namespace {

// Between two looks at a starting server: the resolution of its stages.
constexpr Nanos kPoll = std::chrono::milliseconds(2);

int StatusOf(const net::Url& url) {
  net::ClientRequest request;
  request.url = url;
  request.total_timeout = std::chrono::seconds(5);
  const Result<net::ClientResponse> answer = net::FetchBlocking(std::move(request));
  return answer ? answer->head.status : 0;
}

}  // namespace

Result<ServerProcess> ServerProcess::Start(const std::vector<std::string>& command) {
  const Nanos started = net::MonotonicNow();
  TARE_TRY(ChildProcess process, ChildProcess::Start(command));
  return ServerProcess(std::move(process), started);
}

template <typename Done>
Result<double> ServerProcess::WaitFor(Nanos deadline, const char* what, const Done& done) {
  while (true) {
    if (done()) return ToSeconds(net::MonotonicNow() - started_);
    if (!process_.Running()) {
      return Fail(ErrorKind::kUnavailable,
                  "the server ended before it was {} ({}); run its command by hand to see why",
                  what, process_.HowItEnded());
    }
    if (net::MonotonicNow() - started_ > deadline) {
      return Fail(ErrorKind::kDeadlineExceeded, "the server was not {} within {:.0f} s", what,
                  ToSeconds(deadline));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

Result<double> ServerProcess::WaitListening(const net::Url& base, Nanos deadline) {
  return WaitFor(deadline, "listening", [&] { return IsListening(base.port); });
}

Result<double> ServerProcess::WaitReady(const net::Url& base, Nanos deadline) {
  return WaitFor(deadline, "ready", [&] {
    int status = StatusOf(base.WithPath("/ready"));
    if (status == 404) status = StatusOf(base.WithPath("/health"));
    return status == 200;
  });
}

}  // namespace tare::load
