#include "load/server_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "load/pacing_server.h"

namespace tare::load {
namespace {

TEST(ServerMemory, FindsTheListenerAndReadsIt) {
  const auto server = PacingServer::Start({}).value();
  EXPECT_TRUE(IsListening(server->port()));
  ASSERT_EQ(FindListener(server->port()), ::getpid());
  const MemoryReading reading = ReadMemory(ProcessTree(::getpid()), /*with_pss=*/true);
  EXPECT_GT(reading.rss_bytes, 1u << 20);
  EXPECT_GT(reading.pss_bytes, 0u);
  EXPECT_LE(reading.pss_bytes, reading.rss_bytes);
}

TEST(ServerMemory, SamplesAtItsOwnPace) {
  MemorySampler sampler(::getpid());
  sampler.Sample(std::chrono::seconds(1));
  sampler.Sample(std::chrono::seconds(1) + std::chrono::milliseconds(100));
  sampler.Sample(std::chrono::seconds(1) + std::chrono::milliseconds(300));
  EXPECT_EQ(sampler.points().size(), 2u);
  EXPECT_GT(sampler.peak_rss(), 0u);
}

TEST(ServerMemory, AnotherHostIsNotLoopback) {
  EXPECT_TRUE(IsLoopback("127.0.0.1") && IsLoopback("localhost") && IsLoopback("::1"));
  EXPECT_FALSE(IsLoopback("10.0.0.1"));
}

}  // namespace
}  // namespace tare::load
