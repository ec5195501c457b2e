// One thread's event loop: sockets (epoll), timers to the nanosecond (timerfd), tasks from other
// threads. The HTTP client runs on it; the load generator runs one loop per thread and schedules
// its arrivals on it.
//
// A loop that shares a thread with another one is not Run: the other watches fd() and calls
// RunReady.
//
// Thread safety: Post and Stop may be called from any thread; everything else belongs to
// the thread in Run or RunReady (or, before, to the thread that will call it).
// The loop measures itself: how late its timers fire and how long it works without looking at its
// sockets, so that a measurement can tell whether the client disturbed it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
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
    // Whether the caller is on the loop's thread.
    bool OnThread() const { return thread_.load() == std::this_thread::get_id(); }
    // Runs the task at once when this is the loop's thread, else posts it.
    template <typename F>
    void Do(F task) {
      if (OnThread()) {
        loop_->Do(task);
      } else {
        Post(std::move(task));
      }
    }

   private:
    friend class EventLoop;
    std::mutex mutex_;  // guards tasks_, open_
    std::vector<Task> tasks_;
    bool open_ = true;
    int event_fd_ = -1;
    std::atomic<std::thread::id> thread_{};  // the loop's, while it runs
    EventLoop* loop_ = nullptr;              // valid on that thread
  };

  static Result<std::unique_ptr<EventLoop>> Create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop();

  // Returns after Stop.
  void Run();
  void Stop();
  void Post(Task task) { mailbox_->Post(std::move(task)); }

  // For a loop that another one drives. The descriptor becomes readable when there is work;
  // RunReady does it without waiting. Adopt makes the calling thread the loop's; Abandon ends that.
  int fd() const { return epoll_fd_; }
  void Adopt() { mailbox_->thread_.store(std::this_thread::get_id()); }
  void Abandon() { mailbox_->thread_.store({}); }
  void RunReady();

  // On the loop's thread: runs the task now, as part of a round.
  template <typename F>
  void Do(F&& task) {
    if (in_round_) return task();
    in_round_ = true;
    task();
    EndRound();
  }
  // On the loop's thread: runs the task at the end of this round. Cheaper than Post.
  void Later(Task task);
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
  void Round(int wait_ms);
  void EndRound();
  void ArmTimer();
  void RunTimers();
  void RunTasks();

  int epoll_fd_ = -1;
  int timer_fd_ = -1;
  std::atomic<bool> stop_{false};
  bool in_round_ = false;
  std::vector<Task> later_;
  std::shared_ptr<Mailbox> mailbox_;
  std::map<TimerId, Task> timers_;
  std::uint64_t next_serial_ = 1;
  Nanos armed_{0};  // what timer_fd_ is set to; 0: nothing
  std::vector<std::unique_ptr<Watcher>> retired_;
  SelfMeasurement self_;
};

}  // namespace tare::net
