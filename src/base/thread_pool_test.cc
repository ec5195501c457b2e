#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace tare {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryWorkerOnceManyTimes) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  std::vector<int> calls(static_cast<std::size_t>(pool.size()));
  for (int round = 0; round < 1000; ++round) {
    pool.Run([&](int worker) { ++calls[static_cast<std::size_t>(worker)]; });
  }
  for (int count : calls) EXPECT_EQ(count, 1000);
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

// More threads than cores: progress must not depend on everyone running at once.
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolTest, testing::Values(1, 2, 3, 16));

}  // namespace
}  // namespace tare
