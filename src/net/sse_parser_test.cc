#include "net/sse_parser.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace tare::net {
namespace {

// What a parser said, as lines: "type|data|id" for events, "#text" for comments.
struct Recorder : SseSink {
  std::vector<std::string> said;
  void OnEvent(const SseEvent& event) override {
    said.push_back(fmt::format("{}|{}|{}", event.type, event.data, event.id));
  }
  void OnComment(std::string_view text) override { said.push_back("#" + std::string(text)); }
};

using Lines = std::vector<std::string>;

Lines Parse(std::string_view text, const std::vector<std::size_t>& cuts = {}) {
  SseParser parser;
  Recorder recorder;
  std::size_t next_cut = 0;
  while (!text.empty()) {
    const std::size_t size =
        cuts.empty() ? text.size() : std::min(text.size(), cuts[next_cut++ % cuts.size()] + 1);
    // A buffer of its own that is wiped afterwards: views into it must not be kept.
    std::string piece(text.substr(0, size));
    EXPECT_TRUE(parser.Feed(piece, recorder).has_value());
    std::fill(piece.begin(), piece.end(), '~');
    text.remove_prefix(size);
  }
  return recorder.said;
}

TEST(SseParser, ExamplesOfTheStandard) {
  EXPECT_EQ(Parse("data: YHOO\ndata: +2\ndata: 10\n\n"), (Lines{"|YHOO\n+2\n10|"}));
  EXPECT_EQ(Parse(": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n"
                  "data:  third event\n\n"),
            (Lines{"#test stream", "|first event|1", "|second event|", "| third event|"}));
  EXPECT_EQ(Parse("data\n\ndata\ndata\n\ndata:"), (Lines{"|\n|"}));
  EXPECT_EQ(Parse("data:test\n\ndata: test\n\n"), (Lines{"|test|", "|test|"}));
}

TEST(SseParser, LineEndsAndByteOrderMark) {
  EXPECT_EQ(Parse("\xef\xbb\xbf"
                  "data: a\r\n\r\ndata: b\r\rdata: c\n\n"),
            (Lines{"|a|", "|b|", "|c|"}));
  EXPECT_EQ(Parse("event: add\ndata: 1\n\ndata: 2\n\n"), (Lines{"add|1|", "|2|"}));
}

TEST(SseParser, AnUnfinishedEventIsNone) {
  SseParser parser;
  Recorder recorder;
  ASSERT_TRUE(parser.Feed("data: whole\n\ndata: hal", recorder).has_value());
  EXPECT_EQ(recorder.said, (Lines{"|whole|"}));
  EXPECT_TRUE(parser.mid_event());
  ASSERT_TRUE(parser.Feed("f\n\n", recorder).has_value());
  EXPECT_EQ(recorder.said.back(), "|half|");
  EXPECT_FALSE(parser.mid_event());
}

TEST(SseParser, EndlessEventsAreRefused) {
  SseParser parser;
  Recorder recorder;
  const std::string piece(1 << 20, 'x');
  Status status;
  for (int i = 0; i < 20 && status; ++i) status = parser.Feed(piece, recorder);
  EXPECT_FALSE(status.has_value());
  EXPECT_FALSE(parser.Feed("\n\n", recorder).has_value());
  EXPECT_TRUE(recorder.said.empty());
}

RC_GTEST_PROP(SseParser, AnySplitGivesTheSameEvents, ()) {
  // Texts over the characters the rules care about, so that every rule is met often.
  const auto piece = rc::gen::element<std::string>(
      "data", "event", "id", "retry", "other", ":", " ", "\n", "\r", "\r\n", "\n\n", "{\"a\":1}",
      "\xef\xbb\xbf", std::string(1, '\0'), "x", "data: [DONE]\n\n");
  std::string text;
  for (const std::string& p : *rc::gen::container<std::vector<std::string>>(piece)) text += p;
  const auto cuts = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 8)));
  RC_ASSERT(Parse(text, cuts) == Parse(text));
}

}  // namespace
}  // namespace tare::net
