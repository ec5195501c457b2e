// One thread that runs tasks in the order they came: for work too long for an I/O thread.
//
// Thread safety: Post may be called from any thread. Destruction runs what is queued, then joins.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace tare::gateway {

class TaskQueue {
 public:
  explicit TaskQueue(std::size_t limit);
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // False when `limit` tasks wait already; the task is dropped then.
  bool Post(std::function<void()> task);

 private:
  void Run();

  const std::size_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;  // last: the others exist when it starts
};

}  // namespace tare::gateway
