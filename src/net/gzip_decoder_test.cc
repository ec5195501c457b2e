#include "net/gzip_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "net/test_gzip.h"

namespace tare::net {
namespace {

using ::testing::HasSubstr;

struct Unpacked {
  std::string text;
  std::size_t largest = 0;
  auto Taker() {
    return [this](std::string_view piece) {
      text.append(piece);
      largest = std::max(largest, piece.size());
      return true;
    };
  }
};

TEST(GzipDecoder, KnowsWhatItCanUnpack) {
  EXPECT_TRUE(GzipDecoder::Knows("gzip"));
  EXPECT_TRUE(GzipDecoder::Knows("X-GZIP"));
  EXPECT_TRUE(GzipDecoder::Knows("deflate"));
  EXPECT_FALSE(GzipDecoder::Knows("br"));
}

TEST(GzipDecoder, UnpacksWhateverTheCuts) {
  const std::string text = "data: {\"a\": 1}\n\ndata: [DONE]\n\n";
  for (const int window : {kGzipWindow, kZlibWindow}) {
    const std::string packed = Gzipped({text}, window);
    for (std::size_t size = 1; size <= packed.size(); ++size) {
      GzipDecoder decoder;
      Unpacked out;
      for (std::size_t at = 0; at < packed.size(); at += size) {
        ASSERT_TRUE(decoder.Feed(std::string_view(packed).substr(at, size), out.Taker()));
      }
      EXPECT_EQ(out.text, text);
      EXPECT_TRUE(decoder.complete());
    }
  }
}

TEST(GzipDecoder, WhatWasFlushedComesOutAtOnce) {
  const std::string first = Gzipped({"one", ""}), both = Gzipped({"one", "two"});
  GzipDecoder decoder;
  Unpacked out;
  std::size_t fed = 0;
  while (out.text.empty()) ASSERT_TRUE(decoder.Feed({&both[fed++], 1}, out.Taker()));
  EXPECT_LT(fed, both.size());
  EXPECT_FALSE(decoder.complete()) << "cut here, the body is not whole";
  ASSERT_TRUE(decoder.Feed(std::string_view(both).substr(fed), out.Taker()));
  EXPECT_EQ(out.text, "onetwo");
  EXPECT_TRUE(decoder.complete());
}

TEST(GzipDecoder, MembersFollowOneAnother) {
  GzipDecoder decoder;
  Unpacked out;
  ASSERT_TRUE(decoder.Feed(Gzipped({"one"}) + Gzipped({"two"}), out.Taker()));
  EXPECT_EQ(out.text, "onetwo");
  EXPECT_TRUE(decoder.complete());
}

TEST(GzipDecoder, AHugeBodyIsNeverHeldWhole) {
  const std::string packed = Gzipped({std::string(64 << 20, 'x')});
  EXPECT_LT(packed.size(), 100u << 10);
  GzipDecoder decoder;
  std::size_t seen = 0;
  const auto taken = decoder.Feed(packed, [&](std::string_view piece) {
    EXPECT_LE(piece.size(), 16u << 10);
    seen += piece.size();
    return seen < (1 << 20);
  });
  EXPECT_TRUE(taken);
  EXPECT_LE(seen, (1u << 20) + (16u << 10)) << "it stops when told";
}

TEST(GzipDecoder, WhatIsNotCompressedIsSaid) {
  GzipDecoder decoder;
  Unpacked out;
  const auto fed = decoder.Feed("{\"plain\": true}", out.Taker());
  ASSERT_FALSE(fed);
  EXPECT_THAT(fed.error().message, HasSubstr("cannot be unpacked"));
  EXPECT_TRUE(GzipDecoder().complete()) << "no body at all is whole";
}

}  // namespace
}  // namespace tare::net
