#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"

namespace tare {
namespace {

// How long a waiting thread polls before it sleeps: longer than the gap between two kernels of one
// layer and than a futex wake-up (about 5 us in a guest), far shorter than a scheduler's time
// slice.
constexpr std::chrono::microseconds kSpin(30);

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

// Pauses that fill kSpin. One pause takes 10 to 140 cycles, depending on the processor.
int PausesPerSpin() {
  static const int pauses = [] {
    using Clock = std::chrono::steady_clock;
    constexpr int kTrial = 200;
    Clock::duration best = Clock::duration::max();
    for (int repeat = 0; repeat < 5;
         ++repeat) {  // the best: an interruption would shorten the spin
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < kTrial; ++i) Pause();
      best = std::min(best, Clock::now() - start);
    }
    const auto one = std::max(std::chrono::duration<double>(best).count() / kTrial, 1e-10);
    return static_cast<int>(std::chrono::duration<double>(kSpin).count() / one);
  }();
  return pauses;
}

}  // namespace

struct ThreadPool::Impl {
  int spins = 0;  // polls before sleeping
  std::vector<std::thread> threads;
  // Rises by one with each job; workers wait for it to change.
  alignas(64) std::atomic<std::uint32_t> generation{0};
  // Workers still busy; on a line of its own, as every worker writes it.
  alignas(64) std::atomic<std::uint32_t> running{0};
  std::atomic<bool> stop{false};
  const std::function<void(int)>* work = nullptr;

  void Loop(int worker) {
    std::uint32_t seen = 0;
    while (true) {
      for (int i = 0; i < spins && generation.load(std::memory_order_acquire) == seen; ++i) Pause();
      while (generation.load(std::memory_order_acquire) == seen) generation.wait(seen);
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      (*work)(worker);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  const int cores = UsableCores();
  const int count = threads > 0 ? threads : cores;
  // With more threads than cores, whoever polls keeps another from running.
  impl_->spins = count <= cores ? PausesPerSpin() : 0;
  for (int worker = 1; worker < count; ++worker) {
    impl_->threads.emplace_back([this, worker] { impl_->Loop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_relaxed);
  impl_->generation.fetch_add(1, std::memory_order_release);
  impl_->generation.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

int ThreadPool::size() const { return static_cast<int>(impl_->threads.size()) + 1; }

void ThreadPool::Run(const std::function<void(int)>& work) {
  const auto helpers = static_cast<std::uint32_t>(impl_->threads.size());
  if (helpers == 0) {
    work(0);
    return;
  }
  impl_->work = &work;
  impl_->running.store(helpers, std::memory_order_relaxed);
  impl_->generation.fetch_add(1, std::memory_order_release);
  impl_->generation.notify_all();
  work(0);
  for (int i = 0; i < impl_->spins && impl_->running.load(std::memory_order_acquire) != 0; ++i)
    Pause();
  for (std::uint32_t left; (left = impl_->running.load(std::memory_order_acquire)) != 0;) {
    impl_->running.wait(left);
  }
}

void ThreadPool::ParallelFor(std::size_t count, std::size_t grain,
                             const std::function<void(std::size_t, std::size_t)>& work) {
  TARE_CHECK(grain > 0);
  if (count <= grain || size() == 1) {
    if (count > 0) work(0, count);
    return;
  }
  std::atomic<std::size_t> next{0};
  Run([&](int) {
    while (true) {
      const std::size_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      work(begin, std::min(begin + grain, count));
    }
  });
}

}  // namespace tare
