#include "econ/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "econ/published.h"

namespace tare::econ {
namespace {

double At(const char* text, const Expression::Values& values = {}) {
  Result<Expression> expression = Expression::Parse(text);
  EXPECT_TRUE(expression.has_value()) << text;
  Result<double> value = expression->EvaluateAt(values);
  EXPECT_TRUE(value.has_value()) << text;
  return value.value_or(-1e9);
}

TEST(Expression, PrecedenceAndFunctions) {
  EXPECT_DOUBLE_EQ(At("1 + 2 * 3 ^ 2"), 19);
  EXPECT_DOUBLE_EQ(At("-2 ^ 2"), -4);
  EXPECT_DOUBLE_EQ(At("2 ^ 3 ^ 2"), 512);
  EXPECT_DOUBLE_EQ(At("(1 + 2) * 3 - 8 / 4 / 2"), 8);
  EXPECT_DOUBLE_EQ(At("min(3, x) + max(1, 2)", {{"x", Interval::Of(2)}}), 4);
  EXPECT_DOUBLE_EQ(At("sum(q, 1, 4, q ^ 2)"), 30);
  EXPECT_DOUBLE_EQ(At("sum(i, 1, 2, sum(j, 1, 2, i * j))"), 9);
  EXPECT_DOUBLE_EQ(At("1.12 ^ 0.5 / sqrt(1.12)"), 1);
}

TEST(Expression, RangeOfAFormula) {
  auto index = Expression::Parse("0.4*(100-c) + 0.35*min(l, 30) + 0.25*(100-h)");
  ASSERT_TRUE(index.has_value());
  EXPECT_THAT(index->FreeNames(), ::testing::ElementsAre("c", "h", "l"));
  auto range = index->Evaluate({{"c", {0, 100}}, {"h", {0, 100}}, {"l", {0, 1e9}}});
  ASSERT_TRUE(range.has_value());
  EXPECT_NEAR(range->low, 0, 1e-9);
  EXPECT_NEAR(range->high, 75.5, 1e-9);
}

TEST(Expression, MistakesAreNamed) {
  using ::testing::HasSubstr;
  EXPECT_THAT(Expression::Parse("1 +").error().message, HasSubstr("ends too early"));
  EXPECT_THAT(Expression::Parse("1 $ 2").error().message, HasSubstr("'$'"));
  EXPECT_THAT(Expression::Parse("mean(1)").error().message, HasSubstr("no function"));
  EXPECT_THAT(Expression::Parse("min(1)").error().message, HasSubstr("takes 2"));
  EXPECT_THAT(Expression::Parse("x")->Evaluate({}).error().message, HasSubstr("'x'"));
  EXPECT_FALSE(Expression::Parse(std::string(500, '(')).has_value());
  EXPECT_FALSE(Expression::Parse("sum(q, 0, 1e12, q)")->Evaluate({}).has_value());
  EXPECT_FALSE(Expression::Parse("sum(q, 1e300, 1e301, q)")->Evaluate({}).has_value());
}

TEST(Expression, AnyTextIsRefusedOrRead) {
  EXPECT_TRUE(rc::check("never crashes", [] {
    const auto text = *rc::gen::container<std::string>(
        rc::gen::elementOf(std::string("0123456789.eE+-*/^(), xqminsu")));
    if (auto parsed = Expression::Parse(text)) {
      (void)parsed->Evaluate({{"x", {0, 1}}, {"q", {1, 2}}});
    }
  }));
}

TEST(Interval, HoldsEveryResult) {
  EXPECT_TRUE(rc::check("products and quotients of members are inside", [] {
    auto number = [] { return *rc::gen::inRange(-100, 100) / 7.0; };
    const double a = number(), b = number(), c = number(), d = number();
    const Interval x{std::min(a, b), std::max(a, b)};
    const Interval y{std::min(c, d), std::max(c, d)};
    const double t = *rc::gen::inRange(0, 11) / 10.0;
    const double px = x.low + (x.high - x.low) * t;
    const double py = y.high - (y.high - y.low) * t;
    const double slack = 1e-9;
    const Interval product = (x * y).Widened(slack);
    RC_ASSERT(px * py >= product.low - slack && px * py <= product.high + slack);
    if (py != 0) {
      const Interval quotient = (x / y).Widened(slack);
      RC_ASSERT(px / py >= quotient.low - slack && px / py <= quotient.high + slack);
    }
  }));
}

TEST(PublishedFigure, RangeFollowsTheWrittenDigits) {
  const Published rate = *ParsePublished("38.2 requests/s");
  EXPECT_NEAR(rate.range().low, 38.15, 1e-9);
  EXPECT_NEAR(rate.range().high, 38.25, 1e-9);
  EXPECT_EQ(rate.text(), "38.2 requests/s");
  EXPECT_NEAR(ParsePublished("2e8 tokens/day")->half_step, 5e7, 1);
  EXPECT_NEAR(ParsePublished("+9.2 %")->range().high, 0.0925, 1e-12);
  EXPECT_NEAR(ParsePublished("-6.3 ms")->base(), -0.0063, 1e-12);
  EXPECT_NEAR(ParsePublished("-14 %")->range().low, -0.145, 1e-12);
  EXPECT_FALSE(ParsePublished("about 5").has_value());
}

}  // namespace
}  // namespace tare::econ
