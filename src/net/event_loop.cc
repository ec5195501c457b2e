#include "net/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/check.h"

namespace tare::net {
namespace {

// The loop's own descriptors are told apart from watchers by these marks.
int timer_mark, mail_mark;

constexpr int kEventsPerRound = 256;

}  // namespace

Nanos MonotonicNow() { return std::chrono::steady_clock::now().time_since_epoch(); }

EventLoop::Mailbox::~Mailbox() {
  if (event_fd_ >= 0) ::close(event_fd_);
}

void EventLoop::Mailbox::Post(Task task) {
  const std::lock_guard lock(mutex_);
  if (!open_) return;
  tasks_.push_back(std::move(task));
  if (tasks_.size() == 1) {
    const std::uint64_t one = 1;
    // Cannot fail for lack of room: the counter is drained together with the tasks.
    [[maybe_unused]] const ssize_t n = ::write(event_fd_, &one, sizeof one);
  }
}

Result<std::unique_ptr<EventLoop>> EventLoop::Create() {
  std::unique_ptr<EventLoop> loop(new EventLoop);
  loop->mailbox_ = std::make_shared<Mailbox>();
  loop->mailbox_->loop_ = loop.get();
  loop->epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  loop->timer_fd_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  loop->mailbox_->event_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const auto add = [&](int fd, void* mark) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = mark;
    return fd >= 0 && ::epoll_ctl(loop->epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0;
  };
  if (loop->epoll_fd_ < 0 || !add(loop->timer_fd_, &timer_mark) ||
      !add(loop->mailbox_->event_fd_, &mail_mark)) {
    return Fail(ErrorKind::kResourceExhausted,
                "cannot make an event loop: {}; raise the limit of open files (ulimit -n)",
                std::strerror(errno));
  }
  return loop;
}

EventLoop::~EventLoop() {
  if (mailbox_) {
    std::vector<Task> dropped;
    const std::lock_guard lock(mailbox_->mutex_);
    mailbox_->open_ = false;
    mailbox_->thread_.store({});
    dropped.swap(mailbox_->tasks_);
  }
  if (timer_fd_ >= 0) ::close(timer_fd_);
  if (epoll_fd_ >= 0) ::close(epoll_fd_);
}

void EventLoop::Stop() {
  stop_.store(true, std::memory_order_release);
  Post([] {});
}

void EventLoop::Run() {
  Adopt();
  while (!stop_.load(std::memory_order_acquire)) Round(-1);
  Abandon();
}

void EventLoop::RunReady() {
  Adopt();
  Round(0);
}

void EventLoop::Round(int wait_ms) {
  std::array<epoll_event, kEventsPerRound> events;
  const int count = ::epoll_wait(epoll_fd_, events.data(), kEventsPerRound, wait_ms);
  const Nanos woke = MonotonicNow();
  in_round_ = true;
  bool timer = false;
  bool mail = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.ptr == &timer_mark) {
      timer = true;
    } else if (event.data.ptr == &mail_mark) {
      mail = true;
    } else {
      static_cast<Watcher*>(event.data.ptr)->OnReady(event.events);
    }
  }
  if (timer) {
    std::uint64_t expirations = 0;
    [[maybe_unused]] const ssize_t n = ::read(timer_fd_, &expirations, sizeof expirations);
    armed_ = Nanos(0);
  }
  if (!timers_.empty()) RunTimers();
  if (mail) RunTasks();
  EndRound();
  const Nanos spent = MonotonicNow() - woke;
  self_.round.Add(spent.count());
  self_.busy += spent;
  ++self_.rounds;
}

void EventLoop::EndRound() {
  for (std::size_t i = 0; i < later_.size(); ++i) {
    const Task task = std::move(later_[i]);  // running it may add more
    task();
  }
  later_.clear();
  in_round_ = false;
  // Destructors may retire more: those go in the next round.
  std::vector<std::unique_ptr<Watcher>>().swap(retired_);
}

void EventLoop::Later(Task task) {
  if (in_round_) {
    later_.push_back(std::move(task));
  } else {
    Post(std::move(task));
  }
}

void EventLoop::RunTasks() {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mailbox_->mutex_);
    std::uint64_t posted = 0;
    [[maybe_unused]] const ssize_t n = ::read(mailbox_->event_fd_, &posted, sizeof posted);
    tasks.swap(mailbox_->tasks_);
  }
  for (Task& task : tasks) task();
}

EventLoop::TimerId EventLoop::RunAt(Nanos when, Task task) {
  const TimerId id{when, next_serial_++};
  timers_.emplace(id, std::move(task));
  ArmTimer();
  return id;
}

void EventLoop::CancelTimer(TimerId id) {
  // The descriptor stays armed: one empty wake-up costs less than a system call per timer.
  timers_.erase(id);
}

void EventLoop::RunTimers() {
  Nanos now = MonotonicNow();
  while (!timers_.empty() && timers_.begin()->first.when <= now) {
    auto node = timers_.extract(timers_.begin());
    self_.timer_lateness.Add((now - node.key().when).count());
    node.mapped()();
    now = MonotonicNow();
  }
  ArmTimer();
}

void EventLoop::ArmTimer() {
  if (timers_.empty()) return;
  const Nanos when = std::max(timers_.begin()->first.when, Nanos(1));
  if (armed_ != Nanos(0) && armed_ <= when) return;
  itimerspec spec{};
  spec.it_value.tv_sec = static_cast<time_t>(when.count() / 1'000'000'000);
  spec.it_value.tv_nsec = static_cast<long>(when.count() % 1'000'000'000);
  TARE_CHECK(::timerfd_settime(timer_fd_, TFD_TIMER_ABSTIME, &spec, nullptr) == 0);
  armed_ = when;
}

Status EventLoop::Watch(int fd, std::uint32_t events, Watcher* watcher) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = watcher;
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return Fail(ErrorKind::kResourceExhausted, "cannot watch a socket: {}", std::strerror(errno));
}

void EventLoop::Rewatch(int fd, std::uint32_t events, Watcher* watcher) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = watcher;
  TARE_CHECK(::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) == 0);
}

void EventLoop::Unwatch(int fd) { ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr); }

void EventLoop::Retire(std::unique_ptr<Watcher> watcher) { retired_.push_back(std::move(watcher)); }

}  // namespace tare::net
