#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tare {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryWorkerOnceManyTimes) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  std::vector<int> calls(static_cast<std::size_t>(pool.size()));
  for (int round = 0; round < 200; ++round) {
    pool.Run([&](int worker) { ++calls[static_cast<std::size_t>(worker)]; });
  }
  for (int count : calls) EXPECT_EQ(count, 200);
}

TEST_P(ThreadPoolTest, CoversEveryIndexOnce) {
  ThreadPool pool(GetParam());
  for (std::size_t count : {0u, 1u, 7u, 64u, 1001u}) {
    std::vector<std::atomic<int>> hits(count);
    pool.ParallelFor(count, 5, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) hits[i].fetch_add(1);
    });
    for (auto& hit : hits) EXPECT_EQ(hit.load(), 1);
  }
}

// A worker held up in its chunk leaves all others to the caller.
TEST(ThreadPool, TheRestDoesNotWaitForOneChunk) {
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> by_caller{0};
    std::atomic<int> held{0};
    pool.ParallelFor(64, 1, [&](std::size_t, std::size_t) {
      if (std::this_thread::get_id() == caller) {
        by_caller.fetch_add(1);
        return;
      }
      held.fetch_add(1);
      while (by_caller.load() + held.load() < 64) std::this_thread::yield();
    });
    EXPECT_EQ(by_caller.load() + held.load(), 64);
    EXPECT_LE(held.load(), 2);
  }
}

TEST(ThreadPool, CountsTheJobsItSharesOut) {
  ThreadPool pool(2);
  pool.ParallelFor(4, 4, [](std::size_t, std::size_t) {});
  EXPECT_EQ(pool.jobs(), 0u);
  pool.ParallelFor(5, 4, [](std::size_t, std::size_t) {});
  pool.Run([](int) {});
  EXPECT_EQ(pool.jobs(), 2u);
}

// More threads than cores: progress must not depend on everyone running at once.
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolTest, testing::Values(1, 2, 3, 16));

}  // namespace
}  // namespace tare
