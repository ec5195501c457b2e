#include "gateway/waiting_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tare::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
constexpr auto kInteractive = api::Tier::kInteractive;
constexpr auto kBatch = api::Tier::kBatch;

std::vector<std::uint64_t> ServeAll(WaitingRoom& room, Nanos now) {
  std::vector<std::uint64_t> served;
  room.Serve(now, [&](std::uint64_t id) {
    served.push_back(id);
    return true;
  });
  return served;
}

TEST(WaitingRoom, InteractiveFirstThenInOrder) {
  WaitingRoom room({});
  const Nanos t = seconds(1);
  EXPECT_TRUE(room.Enter(1, kBatch, t));
  EXPECT_TRUE(room.Enter(2, kInteractive, t));
  EXPECT_TRUE(room.Enter(3, kInteractive, t));
  EXPECT_THAT(ServeAll(room, t), ElementsAre(2, 3, 1));
}

TEST(WaitingRoom, AnAgedBatchRequestIsNotStarved) {
  WaitingRoom room({});
  room.Enter(1, kBatch, seconds(1));
  room.Enter(2, kInteractive, seconds(2));
  room.Enter(3, kInteractive, Nanos{});  // came before it
  EXPECT_THAT(ServeAll(room, seconds(11)), ElementsAre(1, 2, 3));
}

TEST(WaitingRoom, BoundsEachTier) {
  QueueOptions options;
  options.interactive.limit = 1;
  WaitingRoom room(options);
  EXPECT_TRUE(room.Enter(1, kInteractive, seconds(1)));
  EXPECT_FALSE(room.Enter(2, kInteractive, seconds(1)));
  EXPECT_TRUE(room.Enter(3, kBatch, seconds(1)));
  room.Leave(1, kInteractive, seconds(1));
  EXPECT_EQ(room.depth(kInteractive), 0);
  EXPECT_TRUE(room.Enter(2, kInteractive, seconds(1)));
}

TEST(WaitingRoom, StopsAtTheFirstThatFindsNoRoom) {
  WaitingRoom room({});
  room.Enter(1, kInteractive, seconds(1));
  room.Enter(2, kInteractive, seconds(1));
  room.Serve(seconds(1), [](std::uint64_t id) { return id == 1; });
  EXPECT_EQ(room.depth(kInteractive), 1);
}

TEST(WaitingRoom, TellsHowLongByThePaceOfLate) {
  WaitingRoom room({});
  EXPECT_EQ(room.ExpectedWait(), seconds(1)) << "nothing known yet";
  for (std::uint64_t i = 0; i < 40; ++i) room.Enter(i, kInteractive, seconds(1));
  for (int i = 0; i < 20; ++i) {
    bool one = false;
    room.Serve(seconds(1) + i * milliseconds(500),
               [&](std::uint64_t) { return !std::exchange(one, true); });
  }
  EXPECT_EQ(room.ExpectedWait(), seconds(10));  // 20 waiting, one every half second
}

TEST(WaitingRoom, AsksForServersAfterALongQueueOnly) {
  QueueOptions options;
  options.scale_out_depth = 1;
  WaitingRoom room(options);
  room.Enter(1, kInteractive, seconds(1));
  EXPECT_FALSE(room.WantsMoreServers(seconds(100)));
  room.Enter(2, kBatch, seconds(100));
  EXPECT_FALSE(room.WantsMoreServers(seconds(129)));
  EXPECT_TRUE(room.WantsMoreServers(seconds(130)));
  room.Leave(1, kInteractive, seconds(131));
  EXPECT_FALSE(room.WantsMoreServers(seconds(132)));
}

}  // namespace
}  // namespace tare::gateway
