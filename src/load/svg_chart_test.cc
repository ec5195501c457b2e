#include "load/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tare::load {
namespace {

using ::testing::HasSubstr;

std::string Chart(double low, double high) {
  ChartLine line;
  line.label = "p50";
  line.x = {1};
  line.y = {low};
  return LineChart({line}, {0, 2, false, "users", false}, {low, high, true, "", true}, "latency");
}

TEST(SvgChart, AShortLogarithmicAxisBeginsAndEndsWithALabel) {
  for (const double high : {0.3, 0.31, 0.45}) {
    const std::string svg = Chart(0.3, high);
    EXPECT_THAT(svg, HasSubstr(">200 ms<"));
    EXPECT_THAT(svg, HasSubstr(">500 ms<"));
  }
}

TEST(SvgChart, EqualPointsOnALabelStillGetASecondOne) {
  const std::string svg = Chart(0.5, 0.5);
  EXPECT_THAT(svg, HasSubstr(">500 ms<"));
  EXPECT_THAT(svg, HasSubstr(">1 s<"));
}

}  // namespace
}  // namespace tare::load
