// One thread's event loop: sockets (epoll), timers to the nanosecond (timerfd), tasks from other
// threads. The HTTP client runs on it; the load generator runs one loop per thread and schedules
// its arrivals on it.
//
// Thread safety: Post and Stop may be called from any thread; everything else belongs to the thread
// in Run (or, before Run, to the thread that will call it).
// The loop measures itself: how late its timers fire and how long it works without looking at its
// sockets, so that a measurement can tell whether the client disturbed it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/histogram.h"
#include "base/result.h"
#include "base/types.h"

namespace tare::net {

Nanos MonotonicNow();

// Receives readiness of one descriptor. Unwatch the descriptor and Retire the object; never destroy
// it directly while the loop runs, as an event for it may be waiting in the same round.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // `events`: EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP.
  virtual void OnReady(std::uint32_t events) = 0;
};

class EventLoop {
 public:
  using Task = std::function<void()>;
  struct TimerId {
    Nanos when{0};
    std::uint64_t serial = 0;  // 0: no timer
    auto operator<=>(const TimerId&) const = default;
  };

  // A way to post that outlives the loop: posting to a loop that is gone does nothing.
  class Mailbox {
   public:
    ~Mailbox();
    void Post(Task task);

   private:
    friend class EventLoop;
    std::mutex mutex_;  // guards tasks_, open_
    std::vector<Task> tasks_;
    bool open_ = true;
    int event_fd_ = -1;
  };

  static Result<std::unique_ptr<EventLoop>> Create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop();

  // Returns after Stop.
  void Run();
  void Stop();
  void Post(Task task) { mailbox_->Post(std::move(task)); }
  std::shared_ptr<Mailbox> mailbox() const { return mailbox_; }

  // Runs the task once, not before `when` (monotonic).
  TimerId RunAt(Nanos when, Task task);
  void CancelTimer(TimerId id);

  Status Watch(int fd, std::uint32_t events, Watcher* watcher);
  void Rewatch(int fd, std::uint32_t events, Watcher* watcher);
  void Unwatch(int fd);
  // Destroys the object at the end of this round.
  void Retire(std::unique_ptr<Watcher> watcher);

  struct SelfMeasurement {
    Histogram timer_lateness{7};  // ns between a timer's time and its task
    Histogram round{7};           // ns of work between two looks at the sockets
    std::uint64_t rounds = 0;
    Nanos busy{0};  // total time not spent waiting
  };
  const SelfMeasurement& self() const { return self_; }
  void ResetSelf() { self_ = {}; }

 private:
  EventLoop() = default;
  void ArmTimer();
  void RunTimers();
  void RunTasks();

  int epoll_fd_ = -1;
  int timer_fd_ = -1;
  std::atomic<bool> stop_{false};
  std::shared_ptr<Mailbox> mailbox_;
  std::map<TimerId, Task> timers_;
  std::uint64_t next_serial_ = 1;
  Nanos armed_{0};  // what timer_fd_ is set to; 0: nothing
  std::vector<std::unique_ptr<Watcher>> retired_;
  SelfMeasurement self_;
};

}  // namespace tare::net
