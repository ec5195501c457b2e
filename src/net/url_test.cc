#include "net/url.h"

#include <gtest/gtest.h>

namespace tare::net {
namespace {

TEST(Url, Parts) {
  const Url plain = ParseUrl("127.0.0.1:8000").value();
  EXPECT_FALSE(plain.tls);
  EXPECT_EQ(plain.host, "127.0.0.1");
  EXPECT_EQ(plain.port, 8000);
  EXPECT_EQ(plain.target, "/");
  const Url full = ParseUrl("HTTPS://api.example.org/v1/?x=1").value();
  EXPECT_TRUE(full.tls);
  EXPECT_EQ(full.port, 443);
  EXPECT_EQ(full.target, "/v1/?x=1");
  EXPECT_EQ(full.Authority(), "api.example.org");
  EXPECT_EQ(full.WithPath("/models").target, "/v1/models");
  const Url v6 = ParseUrl("http://[::1]:81").value();
  EXPECT_EQ(v6.host, "::1");
  EXPECT_EQ(v6.Origin(), "http://[::1]:81");
  EXPECT_EQ(v6.WithPath("/health").target, "/health");
}

TEST(Url, RefusesWhatItCannotUse) {
  for (const char* bad : {"", "http://", "ftp://x", "http://a b", "http://x:0", "http://x:65536",
                          "http://x:", "http://x:8a", "http://[::1", "http://[::1]x",
                          "http://user:key@x", "http://x#y", "http://x\n"}) {
    EXPECT_FALSE(ParseUrl(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace tare::net
