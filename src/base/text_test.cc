#include "base/text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tare {
namespace {

TEST(EditDistance, KnownPairs) {
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("same", "same"), 0u);
}

RC_GTEST_PROP(EditDistance, IsAMetric, (const std::string& a, const std::string& b)) {
  RC_ASSERT(EditDistance(a, b) == EditDistance(b, a));
  RC_ASSERT((EditDistance(a, b) == 0) == (a == b));
  RC_ASSERT(EditDistance(a, b) <= std::max(a.size(), b.size()));
}

TEST(NearestName, FindsMisspellingAndRejectsStrangers) {
  const std::vector<std::string> keys = {"duration", "users", "candidates"};
  EXPECT_EQ(NearestName("duraton", keys), "duration");
  EXPECT_EQ(NearestName("user", keys), "users");
  EXPECT_EQ(NearestName("zebra_crossing", keys), "");
}

TEST(FormatBytes, PicksUnit) {
  EXPECT_EQ(FormatBytes(912), "912 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes(std::uint64_t{3} << 30), "3.00 GiB");
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(Split("a,,b", ','), (std::vector<std::string_view>{"a", "", "b"}));
  EXPECT_EQ(Split("", ',').size(), 1u);
}

TEST(Trim, RemovesBlanksAtBothEnds) {
  EXPECT_EQ(Trim(" \t x y \r\n"), "x y");
  EXPECT_EQ(Trim(" \n"), "");
}

TEST(IsValidUtf8, FollowsTheTable) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("plain é 模型 🙂"));
  for (const char* bad : {"\xff", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                          "\xe6\xa8", "a\x80"}) {
    EXPECT_FALSE(IsValidUtf8(bad));
  }
}

}  // namespace
}  // namespace tare
