#include "econ/discounting.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <cmath>
#include <vector>

#include "econ/depreciation.h"
#include "econ/energy.h"
#include "econ/maas.h"

namespace tare::econ {
namespace {

// 320/1.08 + 285/1.1664 + 260/1.259712 = 296.296 + 244.342 + 206.396 = 747.034.
TEST(Discounting, PublishedThreeYearTotalsAtYearEnd) {
  const Discounting eight{0.08, 1, Timing::kEnd};
  EXPECT_NEAR(PresentValue(std::array{320.0, 285.0, 260.0}, eight), 747.034, 0.001);
  EXPECT_NEAR(PresentValue(std::array{210.0, 225.0, 240.0}, eight), 577.866, 0.001);
  EXPECT_NEAR(PresentValue(std::array{180.0, 195.0, 210.0}, eight), 500.553, 0.001);
}

// 320 + 285/1.08 + 260/1.1664 = 320 + 263.889 + 222.908; the middle is the end times sqrt(1.08).
TEST(Discounting, TimingMovesTheSameFlows) {
  const std::array flows{320.0, 285.0, 260.0};
  EXPECT_NEAR(PresentValue(flows, {0.08, 1, Timing::kStart}), 806.797, 0.001);
  EXPECT_NEAR(PresentValue(flows, {0.08, 1, Timing::kMiddle}), 776.34, 0.002);
}

// Four quarters at an effective 12 %: the last one is worth exactly 1/1.12.
TEST(Discounting, QuartersUseTheEffectiveRate) {
  EXPECT_NEAR(DiscountFactor({0.12, 4, Timing::kEnd}, 4), 1 / 1.12, 1e-12);
  EXPECT_NEAR(DiscountFactor({0.12, 4, Timing::kEnd}, 1), 0.972065, 1e-6);
  EXPECT_DOUBLE_EQ(DiscountFactor({0.12, 4, Timing::kStart}, 1), 1.0);
}

// 100 out, 60 and 60 back: 100 (1+r)^2 - 60 (1+r) - 60 = 0, 1+r = 0.3 + sqrt(0.69) = 1.130662.
TEST(Discounting, InternalRateOfReturnOfATwoYearProject) {
  auto rate = InternalRateOfReturn(100, std::array{60.0, 60.0}, {0, 1, Timing::kEnd});
  ASSERT_TRUE(rate.has_value());
  EXPECT_NEAR(rate->rate_per_year, 0.130662, 1e-6);
  EXPECT_TRUE(rate->unique);
}

TEST(Discounting, InternalRateOfReturnSaysWhenThereIsNoneOrSeveral) {
  EXPECT_FALSE(InternalRateOfReturn(100, std::array{-1.0, -1.0}, {}).has_value());
  // -100 + 230/(1+r) - 132/(1+r)^2 = 0 at 10 % and at 20 %.
  auto two = InternalRateOfReturn(100, std::array{230.0, -132.0}, {0, 1, Timing::kEnd});
  ASSERT_TRUE(two.has_value());
  EXPECT_NEAR(two->rate_per_year, 0.10, 1e-6);
  EXPECT_FALSE(two->unique);
}

TEST(Discounting, PaybackIsLinearWithinAPeriod) {
  EXPECT_DOUBLE_EQ(*PaybackYears(100, std::array{40.0, 40.0, 40.0}, {}), 2.5);
  EXPECT_DOUBLE_EQ(*PaybackYears(100, std::array{40.0, 40.0, 40.0}, {0, 4, Timing::kEnd}), 0.625);
  EXPECT_FALSE(PaybackYears(121, std::array{40.0, 40.0, 40.0}, {}).has_value());
  // At 10 %: 36.364 + 33.058 = 69.421; 30.579 of 30.053 is missing: never in three years.
  EXPECT_FALSE(PaybackYears(100, std::array{40.0, 40.0, 40.0}, {0.10}).has_value());
}

// 0.08 / (1 - 1.08^-3) = 0.08 / 0.2061678 = 0.3880335.
TEST(Discounting, CapitalRecovery) {
  EXPECT_NEAR(CapitalRecoveryFactor(0.08, 3), 0.3880335, 1e-7);
  EXPECT_DOUBLE_EQ(CapitalRecoveryFactor(0, 4), 0.25);
  // 100,000 bought, 20,000 back in three years: (100,000 - 15,876.64) * 0.3880335 = 32,642.68.
  EXPECT_NEAR(CapitalRecoveryPerYear({100'000, 20'000, 3}, 0.08), 32'642.68, 0.01);
  // (100,000 - 20,000) / 3.
  EXPECT_NEAR(StraightLinePerYear({100'000, 20'000, 3}), 26'666.67, 0.01);
  EXPECT_DOUBLE_EQ(StraightLinePerYear({100'000, 20'000, 4}), 20'000);
  EXPECT_DOUBLE_EQ(BookValue({100'000, 20'000, 4}, 1), 80'000);
  EXPECT_DOUBLE_EQ(BookValue({100'000, 20'000, 4}, 9), 20'000);
}

// (100 + 600 * 0.5) W * 1.3 = 520 W; * 8.76 = 4555.2 kWh a year.
TEST(Energy, IdleAndLoadPower) {
  EXPECT_DOUBLE_EQ(EnergyKwhPerYear({100, 700, 1.3}, 0.5), 4555.2);
  EXPECT_DOUBLE_EQ(MeanWatts({100, 700, 1.0}, 0), 100);
}

TEST(Maas, YearsAddUpBeforeDiscounting) {
  const std::array years{YearCost{200, 80, 40}, YearCost{180, 70, 35}, YearCost{160, 65, 35}};
  EXPECT_NEAR(DiscountedCost(years, {0.08, 1, Timing::kEnd}), 747.034, 0.001);
}

TEST(Maas, NoUsualTimingGivesThePublishedTotals) {
  const std::array flows{320.0, 285.0, 260.0};
  const FittingConvention fit = FitConvention(flows, 0.08, 768, 0.5);
  EXPECT_FALSE(fit.timing.has_value());
  ASSERT_TRUE(fit.rate.has_value());  // 320/1.0642 + 285/1.1325 + 260/1.2052 = 768.1
  EXPECT_NEAR(*fit.rate, 0.0642, 0.0003);
  EXPECT_EQ(FitConvention(flows, 0.08, 806.8, 0.05).timing, Timing::kStart);
  EXPECT_EQ(FitConvention(flows, 0.08, 747, 0.5).timing, Timing::kEnd);
}

// Whatever the flows, the rate found makes their value zero, and a higher rate never raises the
// value of flows that are all positive.
TEST(Discounting, PropertiesOfRates) {
  EXPECT_TRUE(rc::check("irr zeroes npv; pv falls with the rate", [] {
    const auto count = *rc::gen::inRange(1, 12);
    std::vector<double> flows;
    for (int i = 0; i < count; ++i) flows.push_back(*rc::gen::inRange(1, 1000));
    const double outlay = *rc::gen::inRange(1, 5000);
    const Discounting quarterly{0, 4, Timing::kMiddle};
    if (auto irr = InternalRateOfReturn(outlay, flows, quarterly)) {
      Discounting at = quarterly;
      at.rate_per_year = irr->rate_per_year;
      RC_ASSERT(std::abs(NetPresentValue(outlay, flows, at)) < 1e-4 * outlay);
    }
    RC_ASSERT(PresentValue(flows, {0.2, 4, Timing::kEnd}) <
              PresentValue(flows, {0.1, 4, Timing::kEnd}));
  }));
}

}  // namespace
}  // namespace tare::econ
