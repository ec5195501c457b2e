#include "econ/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace tare::econ {
namespace {

using ::testing::HasSubstr;

TEST(Quantity, ReadsInTheWantedUnit) {
  EXPECT_DOUBLE_EQ(*ParseIn("1 TB/s", "GB/s"), 1000);
  EXPECT_DOUBLE_EQ(*ParseIn("0.12 USD/kWh", "MONEY/kWh", "USD"), 0.12);
  EXPECT_DOUBLE_EQ(*ParseIn("28.5 kUSD/year", "MONEY/year", "USD"), 28'500);
  EXPECT_DOUBLE_EQ(*ParseIn("5e8 tokens/day", "Mtokens/day"), 500);
  EXPECT_DOUBLE_EQ(*ParseIn("700 W", "kW"), 0.7);
  EXPECT_DOUBLE_EQ(*ParseIn("1 kW*h", "kWh"), 1);
  EXPECT_DOUBLE_EQ(*ParseIn("62 %", "%"), 62);
  EXPECT_DOUBLE_EQ(*ParseIn("62%", "1"), 0.62);
  EXPECT_DOUBLE_EQ(*ParseIn("3 years", "month"), 36);
  EXPECT_DOUBLE_EQ(*ParseIn("80 GiB", "B"), 85'899'345'920.0);
  EXPECT_DOUBLE_EQ(*ParseIn("989 TFLOP/s", "FLOP/s"), 989e12);
  EXPECT_DOUBLE_EQ(*ParseIn("450 kCNY/person/year", "MONEY/person/year", "CNY"), 450'000);
}

TEST(Quantity, MissingOrWrongUnitsAreErrors) {
  EXPECT_THAT(ParseIn("700", "W").error().message, HasSubstr("no unit"));
  EXPECT_THAT(ParseIn("700 GB", "W").error().message, HasSubstr("another kind"));
  EXPECT_THAT(ParseIn("7 GBs/s", "GB/s").has_value(), true);
  EXPECT_THAT(ParseIn("7 tokns", "tokens").error().message, HasSubstr("did you mean 'token'"));
  EXPECT_THAT(ParseIn("7 EUR", "MONEY", "USD").error().message, HasSubstr("currency is USD"));
  EXPECT_THAT(ParseIn("7 EUR/USD", "MONEY", "USD").error().message, HasSubstr("mixes"));
  EXPECT_THAT(ParseIn("fast", "W").error().message, HasSubstr("start with a number"));
  EXPECT_THAT(ParseIn("7 W", "").error().message, HasSubstr("plain number"));
  EXPECT_FALSE(ParseIn("1 USD/", "MONEY", "USD").has_value());
  EXPECT_FALSE(ParseIn("nan W", "W").has_value());
}

TEST(Quantity, FormatsForPeople) {
  EXPECT_EQ(FormatNumber(1234567), "1,234,567");
  EXPECT_EQ(FormatNumber(-28500), "-28,500");
  EXPECT_EQ(FormatNumber(0.0123), "0.0123");
  EXPECT_EQ(FormatSi(671.026e9), "671 G");
}

TEST(Quantity, AnyTextIsRefusedOrRead) {
  EXPECT_TRUE(rc::check("never crashes", [](const std::string& text) {
    (void)ParseIn(text, "GB/s");
    (void)ParseIn("1 " + text, "MONEY/Mtoken", "USD");
  }));
}

}  // namespace
}  // namespace tare::econ
