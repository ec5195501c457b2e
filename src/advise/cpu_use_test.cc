#include "advise/cpu_use.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

namespace tare::advise {
namespace {

TEST(CpuUse, OthersAreWhatIsBusyAndNotOurs) {
  CpuReading before;
  CpuReading after;
  ASSERT_TRUE(ParseStat("cpu  100 0 50 800 10 0 0 40 7 0\ncpu0 1 2\n", before));
  ASSERT_TRUE(ParseStat("cpu  180 0 70 880 10 0 0 60 7 0\n", after));
  EXPECT_EQ(before.capacity, 1000u);
  EXPECT_EQ(before.busy, 190u);
  after.ours = 90;
  // 200 ticks passed, 120 of them busy, 90 of those ours.
  EXPECT_DOUBLE_EQ(*OthersShare(before, after), 0.15);
  EXPECT_FALSE(OthersShare(after, after));
}

TEST(CpuUse, AProcessNameMayHoldAnything) {
  EXPECT_EQ(ParsePidStat("42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14"), 23u);
  EXPECT_FALSE(ParsePidStat("42 (short) S 1 2"));
  EXPECT_FALSE(ParsePidStat(""));
}

TEST(CpuUse, ReadsThisProcess) {
  const auto reading = ReadCpu({static_cast<int>(::getpid())});
  ASSERT_TRUE(reading);
  EXPECT_GT(reading->capacity, 0u);
  EXPECT_FALSE(ReadCpu({-1}));
}

RC_GTEST_PROP(CpuUse, AnyTextIsSafe, (const std::string& text)) {
  CpuReading reading;
  (void)ParseStat(text, reading);
  (void)ParsePidStat(text);
}

}  // namespace
}  // namespace tare::advise
