#include "engine/answer_text.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace tare::engine {
namespace {

TEST(AnswerTextTest, HoldsBackWhatMayBecomeAStopString) {
  EXPECT_EQ(HeldBack("abc", {}), 0u);
  EXPECT_EQ(HeldBack("say STO", {"STOP"}), 3u);
  EXPECT_EQ(HeldBack("say S", {"STOP", "SAY"}), 1u);
  EXPECT_EQ(HeldBack("aab", {"aabaa"}), 3u);
  EXPECT_EQ(HeldBack("xaabaa", {"aabaac"}), 5u);
  EXPECT_EQ(HeldBack("STOP", {"STOP"}), 0u);  // complete ones are found before
  EXPECT_EQ(HeldBack("x", {"y", "xz"}), 1u);
}

// Whatever the pieces, what is shown and held never contains a completed stop string unseen.
TEST(AnswerTextTest, HeldBackIsTheLongestBeginning) {
  EXPECT_TRUE(rc::check([](const std::vector<bool>& bits, const std::vector<bool>& word_bits) {
    RC_PRE(!word_bits.empty());
    std::string text, word;
    for (const bool bit : bits) text += bit ? 'a' : 'b';
    for (const bool bit : word_bits) word += bit ? 'a' : 'b';
    std::size_t expected = 0;
    for (std::size_t n = 1; n < word.size() && n <= text.size(); ++n) {
      if (text.ends_with(word.substr(0, n))) expected = n;
    }
    RC_ASSERT(HeldBack(text, {word}) == expected);
  }));
}

}  // namespace
}  // namespace tare::engine
