#include "gateway/task_queue.h"

#include <utility>

namespace tare::gateway {

TaskQueue::TaskQueue(std::size_t limit) : limit_(limit), thread_([this] { Run(); }) {}

TaskQueue::~TaskQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool TaskQueue::Post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (tasks_.size() >= limit_) return false;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void TaskQueue::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace tare::gateway
