#include "base/rfc3339.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tare {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

TEST(Rfc3339, KnownTimes) {
  EXPECT_EQ(FormatRfc3339(system_clock::time_point(milliseconds(0))), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(FormatRfc3339(system_clock::time_point(milliseconds(1'709'210'096'789))),
            "2024-02-29T12:34:56.789Z");
}

TEST(Rfc3339, OffsetsAndFractions) {
  const auto expected = ParseRfc3339("2024-02-29T12:34:56.500Z").value();
  EXPECT_EQ(ParseRfc3339("2024-02-29T14:34:56.5+02:00").value(), expected);
  EXPECT_EQ(ParseRfc3339("2024-02-29 07:04:56.500000-05:30").value(), expected);
}

TEST(Rfc3339, RefusesWhatIsNotATime) {
  for (const char* bad :
       {"", "2024", "2023-02-29T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00",
        "2024-01-01T00:00:00.Z", "2024-01-01T00:00:00Zx", "9999-01-01T00:00:00Z"}) {
    EXPECT_FALSE(ParseRfc3339(bad).has_value()) << bad;
  }
}

RC_GTEST_PROP(Rfc3339, RoundTrips, ()) {
  const auto millis = *rc::gen::inRange<std::int64_t>(0, std::int64_t{7'000'000'000'000});
  const system_clock::time_point time{milliseconds(millis)};
  RC_ASSERT(ParseRfc3339(FormatRfc3339(time)).value() == time);
}

}  // namespace
}  // namespace tare
