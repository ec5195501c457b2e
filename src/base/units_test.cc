#include "base/units.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tare {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ParseDuration, AcceptsUnitsAndSums) {
  EXPECT_EQ(*ParseDuration("500ms"), Nanos(milliseconds(500)));
  EXPECT_EQ(*ParseDuration("1m30s"), Nanos(seconds(90)));
  EXPECT_EQ(*ParseDuration("1.5 h"), Nanos(seconds(5400)));
  EXPECT_EQ(*ParseDuration("2min"), Nanos(seconds(120)));
  EXPECT_EQ(*ParseDuration("12µs"), Nanos(12000));
  EXPECT_EQ(*ParseDuration("0"), Nanos(0));
}

TEST(ParseDuration, RefusesGuesses) {
  for (const char* text :
       {"", "60", "s", "-5s", "5 parsecs", "1e300h", "5s!", "nan s", "inf", "5s3"}) {
    EXPECT_FALSE(ParseDuration(text)) << text;
  }
  EXPECT_NE(ParseDuration("60").error().message.find("unit"), std::string::npos);
}

TEST(ParseByteSize, DecimalAndBinaryUnits) {
  EXPECT_EQ(*ParseByteSize("16 GB"), 16'000'000'000u);
  EXPECT_EQ(*ParseByteSize("1.5GiB"), (std::uint64_t{3} << 30) / 2);
  EXPECT_EQ(*ParseByteSize("512"), 512u);
  for (const char* text : {"", "-1B", "1 GiBs", "9e30TB", "GB"})
    EXPECT_FALSE(ParseByteSize(text)) << text;
}

TEST(ParseRatePerSecond, PerUnit) {
  EXPECT_DOUBLE_EQ(*ParseRatePerSecond("12/s"), 12);
  EXPECT_DOUBLE_EQ(*ParseRatePerSecond("30/min"), 0.5);
  EXPECT_DOUBLE_EQ(*ParseRatePerSecond("864000/day"), 10);
  EXPECT_DOUBLE_EQ(*ParseRatePerSecond("3.5"), 3.5);
  for (const char* text : {"", "-1/s", "1/fortnight", "1//s", "/s"})
    EXPECT_FALSE(ParseRatePerSecond(text)) << text;
}

TEST(ParseFraction, PercentOrShare) {
  EXPECT_DOUBLE_EQ(*ParseFraction("85%"), 0.85);
  EXPECT_DOUBLE_EQ(*ParseFraction("0.85"), 0.85);
  for (const char* text : {"", "85", "101%", "-1%", "50%%"})
    EXPECT_FALSE(ParseFraction(text)) << text;
}

TEST(ParseUsdPerHour, Periods) {
  EXPECT_DOUBLE_EQ(*ParseUsdPerHour("0.12/h"), 0.12);
  EXPECT_DOUBLE_EQ(*ParseUsdPerHour("$3.5/hour"), 3.5);
  EXPECT_DOUBLE_EQ(*ParseUsdPerHour("1240/month"), 1240.0 / 730);
  EXPECT_DOUBLE_EQ(*ParseUsdPerHour("8760/year"), 1.0);
  for (const char* text : {"", "-1/h", "free", "1/s"}) EXPECT_FALSE(ParseUsdPerHour(text)) << text;
}

TEST(FormatDuration, ForPeople) {
  EXPECT_EQ(FormatDuration(milliseconds(340)), "340 ms");
  EXPECT_EQ(FormatDuration(milliseconds(2500)), "2.50 s");
  EXPECT_EQ(FormatDuration(seconds(90)), "1m 30s");
  EXPECT_EQ(FormatDuration(seconds(3720)), "1h 2m");
  EXPECT_EQ(FormatDuration(Nanos(12300)), "12.3 µs");
}

RC_GTEST_PROP(Units, NeverCrashOnAnyText, (const std::string& text)) {
  (void)ParseNumber(text);
  (void)ParseInteger(text);
  if (auto value = ParseDuration(text)) RC_ASSERT(value->count() >= 0);
  (void)ParseByteSize(text);
  if (auto value = ParseRatePerSecond(text)) RC_ASSERT(*value >= 0);
  if (auto value = ParseFraction(text)) RC_ASSERT(*value >= 0 && *value <= 1);
  if (auto value = ParseUsdPerHour(text)) RC_ASSERT(*value >= 0);
}

}  // namespace
}  // namespace tare
