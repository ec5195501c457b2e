#include "net/http_response_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tare::net {
namespace {

using ::testing::HasSubstr;

struct Recorder : HttpResponseSink {
  int heads = 0;
  HttpResponseHead head;
  std::string body;
  void OnHead(const HttpResponseHead& h) override {
    ++heads;
    head = h;
  }
  void OnBody(std::string_view piece) override { body += piece; }
};

struct Outcome {
  int heads = 0, status = 0;
  std::string body, error, end_error;
  bool complete = false, keep_alive = false;
  std::size_t used = 0;
  bool operator==(const Outcome&) const = default;
};

// Feeds `text` cut at the given sizes (cyclic), then closes the connection.
Outcome Parse(std::string_view text, const std::vector<std::size_t>& cuts = {},
              bool head_only = false) {
  HttpResponseParser parser;
  parser.Reset(head_only);
  Recorder recorder;
  Outcome out;
  std::size_t next_cut = 0;
  while (!text.empty() && !parser.complete()) {
    const std::size_t size =
        cuts.empty() ? text.size() : std::min(text.size(), cuts[next_cut++ % cuts.size()] + 1);
    const auto used = parser.Feed(text.substr(0, size), recorder);
    if (!used) {
      out.error = used.error().message;
      break;
    }
    out.used += *used;
    text.remove_prefix(size);
  }
  out.complete = parser.complete();
  out.keep_alive = parser.keep_alive();
  if (const Status end = parser.Finish(); !end) out.end_error = end.error().message;
  out.heads = recorder.heads;
  out.status = recorder.head.status;
  out.body = recorder.body;
  return out;
}

constexpr std::string_view kChunked =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: x\r\n\r\n";

TEST(HttpResponseParser, Chunked) {
  const Outcome out = Parse(kChunked);
  EXPECT_EQ(out.body, "hello world");
  EXPECT_TRUE(out.complete);
  EXPECT_TRUE(out.keep_alive);
  EXPECT_EQ(out.used, kChunked.size());
}

TEST(HttpResponseParser, ContentLengthLeavesTheNextResponseAlone) {
  const std::string first = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
  const Outcome out = Parse(first + "HTTP/1.1 500");
  EXPECT_EQ(out.body, "abc");
  EXPECT_EQ(out.used, first.size());
}

TEST(HttpResponseParser, BodyUntilClose) {
  const Outcome out = Parse("HTTP/1.0 200 OK\r\n\r\nabc");
  EXPECT_EQ(out.body, "abc");
  EXPECT_FALSE(out.complete);
  EXPECT_EQ(out.end_error, "");
  EXPECT_FALSE(out.keep_alive);
}

TEST(HttpResponseParser, InterimResponsesAreSkipped) {
  const Outcome out = Parse(
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
      "HTTP/1.1 204 No Content\r\n\r\n");
  EXPECT_EQ(out.heads, 1);
  EXPECT_EQ(out.status, 204);
  EXPECT_TRUE(out.complete);
}

TEST(HttpResponseParser, AnswerToHeadHasNoBody) {
  EXPECT_TRUE(Parse("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", {}, true).complete);
}

TEST(HttpResponseParser, KeepAliveRules) {
  EXPECT_FALSE(
      Parse("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").keep_alive);
  EXPECT_TRUE(
      Parse("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n").keep_alive);
  EXPECT_FALSE(Parse("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "0\r\n\r\n")
                   .keep_alive);
}

TEST(HttpResponseParser, RefusesWhatBreaksTheFormat) {
  for (const char* bad : {
           "SSH-2.0-OpenSSH_9.2\r\n",
           "HTTP/2.0 200 OK\r\n\r\n",
           "HTTP/1.1 20 OK\r\n\r\n",
           "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
           "HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n",
           "HTTP/1.1 200 OK\r\n folded first\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: 3, 4\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
           "HTTP/1.1 101 Switching Protocols\r\n\r\n",
       }) {
    EXPECT_NE(Parse(bad).error, "") << bad;
  }
  EXPECT_EQ(Parse("HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc").error, "");
}

TEST(HttpResponseParser, SaysWhatWasMissingWhenTheConnectionCloses) {
  EXPECT_THAT(Parse("HTTP/1.1 200").end_error, HasSubstr("before the response headers"));
  EXPECT_THAT(Parse("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc").end_error,
              HasSubstr("2 bytes before"));
  EXPECT_THAT(Parse(kChunked.substr(0, kChunked.size() - 20)).end_error,
              HasSubstr("before the last chunk"));
}

TEST(HttpResponseParser, EndlessHeadersAreRefused) {
  std::string text = "HTTP/1.1 200 OK\r\n";
  while (text.size() < 2 * HttpResponseParser::kMaxHeadBytes) text += "X-Filler: 0123456789\r\n";
  EXPECT_THAT(Parse(text).error, HasSubstr("longer than"));
  EXPECT_THAT(Parse(std::string(2 * HttpResponseParser::kMaxHeadBytes, 'x'), {100}).error,
              HasSubstr("longer than"));
  EXPECT_THAT(Parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
                    std::string(2 * HttpResponseParser::kMaxLineBytes, 'x'))
                  .error,
              HasSubstr("chunk-size"));
}

RC_GTEST_PROP(HttpResponseParser, AnySplitGivesTheSameEvents, ()) {
  const std::string body = *rc::gen::container<std::string>(rc::gen::inRange('\0', '\x7f'));
  const int framing = *rc::gen::inRange(0, 3);
  std::string text = *rc::gen::element<std::string>("", "HTTP/1.1 100 Continue\r\n\r\n");
  text += "HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\n";
  if (framing == 0) {
    text += fmt::format("Content-Length: {}\r\n\r\n{}", body.size(), body);
  } else if (framing == 1) {
    text += "Transfer-Encoding: chunked\r\n\r\n";
    for (std::size_t at = 0; at < body.size();) {
      const auto size = *rc::gen::inRange<std::size_t>(1, body.size() - at + 1);
      text += fmt::format("{:X}\r\n{}\r\n", size, body.substr(at, size));
      at += size;
    }
    text += "0\r\n\r\n";
  } else {
    text += "\r\n" + body;
  }
  const auto cuts = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 20)));
  const Outcome whole = Parse(text);
  RC_ASSERT(whole.error.empty() && whole.end_error.empty());
  RC_ASSERT(whole.body == body);
  RC_ASSERT(Parse(text, cuts) == whole);
}

}  // namespace
}  // namespace tare::net
