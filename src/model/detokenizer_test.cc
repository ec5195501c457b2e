#include "model/detokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/test_model.h"

namespace tare::model {
namespace {

std::string Lossy(std::string_view bytes) {
  std::string out;
  if (AppendUtf8Lossy(bytes, out) != 0) out += "\xEF\xBF\xBD";
  return out;
}

TEST(AppendUtf8LossyTest, KeepsWellFormedText) {
  for (std::string_view text : {"", "plain", "é", "中文", "😀 😃", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(Lossy(text), text);
  }
}

// Expected texts: Python's bytes.decode("utf-8", errors="replace").
TEST(AppendUtf8LossyTest, ReplacesEachMaximalIllFormedPart) {
  EXPECT_EQ(Lossy("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(Lossy("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(Lossy("\xE0\x80\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(Lossy("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(Lossy("\xF0\x9F\x98z"), "\uFFFDz");
  EXPECT_EQ(Lossy("\xE4\xB8"), "\uFFFD");
  EXPECT_EQ(Lossy("\xF5\x80"), "\uFFFD\uFFFD");
}

TEST(AppendUtf8LossyTest, CutAnywhereGivesTheSameText) {
  EXPECT_TRUE(rc::check([](const std::string& bytes) {
    std::string streamed;
    std::string pending;
    for (const char byte : bytes) {
      pending += byte;
      const std::size_t left = AppendUtf8Lossy(pending, streamed);
      RC_ASSERT(left <= 3u);
      pending.erase(0, pending.size() - left);
    }
    if (!pending.empty()) streamed += "\uFFFD";
    RC_ASSERT(streamed == Lossy(bytes));
    std::string again;
    RC_ASSERT(AppendUtf8Lossy(streamed, again) == 0u);
    RC_ASSERT(again == streamed);  // what went out is well-formed
  }));
}

}  // namespace
}  // namespace tare::model
