#include "econ/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tare::econ {
namespace {

using testing::HasSubstr;
using testing::Not;

// An axis that crosses zero names it "0": steps added up from below end beside it.
TEST(SvgChart, ZeroOnAnAxisHasNoSign) {
  for (const double low : {-0.9, -2.5, -30.0, -1e-3, -7e6}) {
    const std::string svg =
        TornadoChart({{"growth", low, -low * 1.7, "10 %", "30 %"}}, -low / 9, "value");
    EXPECT_THAT(svg, HasSubstr(">0<")) << low;
    EXPECT_THAT(svg, Not(HasSubstr(">-0<"))) << low;
  }
}

}  // namespace
}  // namespace tare::econ
