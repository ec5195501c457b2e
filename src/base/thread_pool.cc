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

// The gate of a job, one word: which job, whether it still takes workers, how many came and how
// many of them are inside.
constexpr int kJobShift = 32;
constexpr std::uint64_t kClosed = std::uint64_t{1} << 31;
constexpr int kArrivedShift = 15;
constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kArrivedShift) - 1;

std::uint32_t JobOf(std::uint64_t gate) { return static_cast<std::uint32_t>(gate >> kJobShift); }
std::uint64_t Inside(std::uint64_t gate) { return gate & kCountMask; }
std::uint64_t Arrived(std::uint64_t gate) { return (gate >> kArrivedShift) & kCountMask; }

}  // namespace

// A job is published by opening the gate and raising `job`, on which idle workers wait. A worker
// that comes while the gate is open goes in; one that comes late finds it closed and waits for the
// next job. So whoever started a job never waits for a worker that the operating system has not
// run yet, only for those inside: with fewer free cores than threads the caller does the work
// alone instead of waiting for a time slice at every job.
struct ThreadPool::Impl {
  int spins = 0;  // polls before sleeping
  std::vector<std::thread> threads;
  std::uint64_t jobs = 0;
  alignas(64) std::atomic<std::uint32_t> job{0};
  alignas(64) std::atomic<std::uint64_t> gate{kClosed};
  // Rises when the gate's inside empties: what the caller sleeps on.
  alignas(64) std::atomic<std::uint32_t> emptied{0};
  std::atomic<bool> stop{false};
  const std::function<void(int)>* work = nullptr;

  bool Enter(std::uint32_t wanted) {
    std::uint64_t now = gate.load(std::memory_order_acquire);
    while (JobOf(now) == wanted && (now & kClosed) == 0) {
      const std::uint64_t entered = now + 1 + (std::uint64_t{1} << kArrivedShift);
      if (gate.compare_exchange_weak(now, entered, std::memory_order_acq_rel)) return true;
    }
    return false;
  }

  void Leave() {
    if (Inside(gate.fetch_sub(1, std::memory_order_acq_rel)) != 1) return;
    emptied.fetch_add(1, std::memory_order_release);
    emptied.notify_one();
  }

  void Loop(int worker) {
    std::uint32_t seen = 0;
    while (true) {
      for (int i = 0; i < spins && job.load(std::memory_order_acquire) == seen; ++i) Pause();
      while (job.load(std::memory_order_acquire) == seen) job.wait(seen);
      seen = job.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      if (!Enter(seen)) continue;
      (*work)(worker);
      Leave();
    }
  }

  void Open(const std::function<void(int)>& what) {
    work = &what;
    ++jobs;
    const std::uint32_t next = job.load(std::memory_order_relaxed) + 1;
    gate.store(std::uint64_t{next} << kJobShift, std::memory_order_release);
    job.store(next, std::memory_order_release);
    job.notify_all();
  }

  // Waits until `arrivals` workers have come and all who came have left.
  void AwaitLeft(std::uint64_t arrivals) {
    const auto done = [&] {
      const std::uint64_t now = gate.load(std::memory_order_acquire);
      return Inside(now) == 0 && Arrived(now) >= arrivals;
    };
    for (int i = 0; i < spins; ++i) {
      if (done()) return;
      Pause();
    }
    while (true) {
      const std::uint32_t before = emptied.load(std::memory_order_acquire);
      if (done()) return;
      emptied.wait(before);
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  const int cores = UsableCores();
  // The gate counts workers in 15 bits; no machine comes near.
  const int count = std::min(threads > 0 ? threads : cores, 4096);
  // With more threads than cores, whoever polls keeps another from running.
  impl_->spins = count <= cores ? PausesPerSpin() : 0;
  for (int worker = 1; worker < count; ++worker) {
    impl_->threads.emplace_back([this, worker] { impl_->Loop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_relaxed);
  impl_->job.fetch_add(1, std::memory_order_release);
  impl_->job.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

int ThreadPool::size() const { return static_cast<int>(impl_->threads.size()) + 1; }

std::uint64_t ThreadPool::jobs() const { return impl_->jobs; }

void ThreadPool::Run(const std::function<void(int)>& work) {
  const std::size_t helpers = impl_->threads.size();
  if (helpers == 0) {
    work(0);
    return;
  }
  impl_->Open(work);
  work(0);
  impl_->AwaitLeft(helpers);
  impl_->gate.fetch_or(kClosed, std::memory_order_acq_rel);
}

void ThreadPool::ParallelFor(std::size_t count, std::size_t grain,
                             const std::function<void(std::size_t, std::size_t)>& work) {
  TARE_CHECK(grain > 0);
  if (count <= grain || size() == 1) {
    if (count > 0) work(0, count);
    return;
  }
  std::atomic<std::size_t> next{0};
  const std::function<void(int)> share = [&](int) {
    while (true) {
      const std::size_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      work(begin, std::min(begin + grain, count));
    }
  };
  impl_->Open(share);
  share(0);
  impl_->gate.fetch_or(kClosed, std::memory_order_acq_rel);
  impl_->AwaitLeft(0);
}

}  // namespace tare
