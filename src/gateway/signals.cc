#include "gateway/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tare::gateway {

namespace {

// What poll can count in milliseconds is less than Nanos; longer is for ever.
constexpr Nanos kLongest = std::chrono::hours(24);

}  // namespace

Result<SignalWaiter> SignalWaiter::Create() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  const int wakes = eventfd(0, EFD_CLOEXEC);
  if (signals < 0 || wakes < 0) {
    return Fail(ErrorKind::kIo, "cannot watch for signals: {}", std::strerror(errno));
  }
  return SignalWaiter(signals, wakes);
}

SignalWaiter::SignalWaiter(SignalWaiter&& other) noexcept
    : signals_(std::exchange(other.signals_, -1)), wakes_(std::exchange(other.wakes_, -1)) {}

SignalWaiter::~SignalWaiter() {
  if (signals_ >= 0) ::close(signals_);
  if (wakes_ >= 0) ::close(wakes_);
}

int SignalWaiter::Wait(Nanos patience) {
  const auto deadline = std::chrono::steady_clock::now() + std::min<Nanos>(patience, kLongest);
  while (true) {
    std::array<pollfd, 2> watched = {{{signals_, POLLIN, 0}, {wakes_, POLLIN, 0}}};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int timeout =
        patience > kLongest ? -1 : static_cast<int>(std::max<std::int64_t>(0, left.count()));
    const int ready = ::poll(watched.data(), watched.size(), timeout);
    if (ready == 0) return kNothing;
    if (ready < 0) continue;  // EINTR
    if ((watched[0].revents & POLLIN) != 0) {
      signalfd_siginfo info{};
      if (::read(signals_, &info, sizeof info) == sizeof info)
        return static_cast<int>(info.ssi_signo);
    }
    if ((watched[1].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      if (::read(wakes_, &count, sizeof count) == sizeof count) return 0;
    }
  }
}

void SignalWaiter::Wake() {
  const std::uint64_t one = 1;
  // An eventfd refuses a write only when its counter is full, and then the reader is awake anyway.
  [[maybe_unused]] const ssize_t written = ::write(wakes_, &one, sizeof one);
}

}  // namespace tare::gateway
