// The pool that runs kernels: a fixed set of threads that split one job at a time.
//
// Thread safety: one job at a time; Run and ParallelFor are called by the thread that owns the pool
// (the engine's step thread). The caller takes part as worker 0.
// Waiting is a bounded spin, then a futex; ParallelFor does not wait for workers that have not
// begun when the work runs out. So an oversubscribed machine does not collapse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace tare {

class ThreadPool {
 public:
  // `threads` counts the caller; at least 1. 0 means one per usable core.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls work(worker) once on every worker, 0 <= worker < size(); returns when all are done.
  void Run(const std::function<void(int worker)>& work);

  // Calls work(begin, end) over [0, count) in chunks of about `grain`, handed out dynamically to
  // the caller and whichever workers come in time. One chunk is called directly.
  void ParallelFor(std::size_t count, std::size_t grain,
                   const std::function<void(std::size_t begin, std::size_t end)>& work);

  // Jobs that were shared out so far: each is one fork and join.
  std::uint64_t jobs() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tare
