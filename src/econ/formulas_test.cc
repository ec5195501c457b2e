// The published formulas EC1, EC2, EC4-EC7, EC9 and EC10 against results worked out by hand
// (docs/ECONOMICS.md shows each calculation).
#include <gtest/gtest.h>

#include <array>

#include "econ/complexity.h"
#include "econ/compute_cost.h"
#include "econ/hidden_cost.h"
#include "econ/penalty.h"
#include "econ/roi.h"
#include "econ/volume_cost.h"

namespace tare::econ {
namespace {

constexpr VolumeCost kFirst{28'500, 0.87};
constexpr VolumeCost kSecond{31'200, 0.73};

// 2,700 a year / 365 / 0.14 per million = 52.838 million tokens a day (published: 200 million).
TEST(VolumeCost, BreakEvenOfThePublishedOptions) {
  auto even = BreakEvenVolume(kFirst, kSecond);
  ASSERT_TRUE(even.has_value());
  EXPECT_NEAR(even->tokens_per_day, 52.838e6, 0.001e6);
  EXPECT_TRUE(even->b_wins_above);
  EXPECT_FALSE(BreakEvenVolume(kSecond, {kFirst.fixed_per_year, 0.73}).has_value());
  EXPECT_FALSE(BreakEvenVolume({100, 1}, {200, 2}).has_value());  // b is dearer everywhere
}

// 500 million a day = 182,500 million a year; * 0.87 = 158,775; + 28,500 = 187,275; /182,500.
TEST(VolumeCost, AllInCostFallsWithVolume) {
  EXPECT_NEAR(CostPerYear(kFirst, 5e8), 187'275, 0.01);
  EXPECT_NEAR(AllInCostPerMillionTokens(kFirst, 5e8), 1.02616, 1e-5);
  EXPECT_NEAR(AllInCostPerMillionTokens(kFirst, 1e7), 0.87 + 28'500 / 3650.0, 1e-9);
}

// Price 1.50: surplus (1.50 - 0.87) * 182,500 - 28,500 = 86,475 a year; 85,500 / 86,475.
TEST(VolumeCost, PaybackNeedsAPrice) {
  EXPECT_NEAR(*PaybackYearsAtVolume(85'500, 1.50, kFirst, 5e8), 0.98872, 1e-5);
  EXPECT_FALSE(PaybackYearsAtVolume(85'500, 0.90, kFirst, 5e8).has_value());
}

TEST(VolumeCost, RequestsPerSecondPerDollar) {
  EXPECT_NEAR(RequestsPerSecondPerMoney(982, 1240), 0.79194, 1e-5);
  EXPECT_NEAR(RequestsPerSecondPerMoney(1847, 1240), 1.48952, 1e-5);
}

// 7e9 * 2 * 128 = 1.792e12 FLOP; / (312e12 * 0.65 = 2.028e14) = 8.8363 ms; 113.17 requests/s.
TEST(ComputeCost, PublishedSevenBillionCase) {
  const DeviceCompute device{312e12, 0.65};
  EXPECT_NEAR(DeviceSecondsPerRequest(7e9, 128, device), 8.8363e-3, 1e-7);
  EXPECT_NEAR(RequestsPerSecondCeiling(7e9, 128, device), 113.17, 0.01);
  EXPECT_NEAR(DevicesForRate(7e9, 128, device, 142), 1.25475, 1e-5);
}

// 6 * 21.376e9 * 8.1e12 = 1.03887e24 FLOP; / (989e12 * 0.4 = 3.956e14) = 2.6261e9 s = 30,394 days.
TEST(ComputeCost, TrainingFromActiveParameters) {
  EXPECT_NEAR(TrainingDeviceDays(21.376e9, 8.1e12, {989e12, 0.4}), 30'394, 1);
  // 3,850 thousand-device-days for that work would be a utilisation of 0.32 %.
  EXPECT_NEAR(ImpliedTrainingUtilisation(21.376e9, 8.1e12, 989e12, 3.85e6), 0.003158, 1e-6);
}

// 0.4 * 5 + 0.35 * 8 + 0.25 * 10 = 2 + 2.8 + 2.5 = 7.3.
TEST(Complexity, FormulaAndBands) {
  const Complexity complexity = OperationsComplexity({95, 8, 90});
  EXPECT_NEAR(complexity.index, 7.3, 1e-12);
  EXPECT_EQ(complexity.band, "high");
  EXPECT_EQ(OperationsComplexity({99, 4, 96}).band, "low");     // 0.4 + 1.4 + 1.0 = 2.8
  EXPECT_EQ(OperationsComplexity({97, 6, 95}).band, "medium");  // 1.2 + 2.1 + 1.25 = 4.55
}

// Published as 0-10: nothing covered, slow, nothing healed gives 40 + 10.5 + 25.
TEST(Complexity, ReachesSeventyFivePointFive) {
  EXPECT_DOUBLE_EQ(OperationsComplexity({0, 300, 0}).index, 75.5);
  EXPECT_DOUBLE_EQ(OperationsComplexity({0, 30, 0}).share_of_maximum, 1.0);
}

// 120 batches a day * 0.12 s = 14.4 s a day = 5,256 s = 1.46 CPU-hours a year.
TEST(HiddenCost, DriftDetectionTakesHoursNotPeople) {
  const DriftDetection drift{0.120, 10'000, 1.2e6, 0.05};
  EXPECT_NEAR(DriftCpuHoursPerYear(drift), 1.46, 1e-9);
  EXPECT_NEAR(DriftCostPerYear(drift), 0.073, 1e-9);
}

TEST(HiddenCost, PromptStaffAndAuditShares) {
  const PromptStaff staff{3, 450'000, 5'720'000};
  EXPECT_DOUBLE_EQ(PromptStaffCostPerYear(staff), 1'350'000);
  EXPECT_NEAR(PromptStaffShare(staff), 0.236, 0.0001);
  const auto shares = ProportionalShares(std::array{62.0, 45.0, 56.0});  // of 163
  EXPECT_NEAR(shares[0], 0.3804, 0.0001);
  EXPECT_NEAR(shares[1], 0.2761, 0.0001);
  EXPECT_NEAR(shares[2], 0.3436, 0.0001);
}

// 0.8 points * 575,000 * 0.000412 = 189.52 (published: 382 - 146 = 236).
TEST(Penalty, PublishedFormula) {
  EXPECT_NEAR(PenaltyAvoidedPerYear({3.2, 2.4, 575'000, 0.000412}), 189.52, 0.001);
  EXPECT_NEAR(PenaltyPerYear(3.2, 575'000, 0.000412), 758.08, 0.001);
}

RoiInputs Case(double growth, double replaced, double effectiveness) {
  RoiInputs inputs;
  inputs.user_growth_per_quarter = growth;
  inputs.replacement_rate = replaced;
  inputs.effectiveness = effectiveness;
  return inputs;
}

// First two quarters of the third case by hand: q = 0: 3.6 + 10.98 + 0 = 14.58;
// q = 1: 4.68 + 9.333 + 45 * 0.49 * 0.08 = 1.764, together 15.777.
TEST(Roi, QuartersOfTheThirdCase) {
  const RoiResult result = ReturnOnInvestment(Case(0.30, 0.61, 0.49));
  ASSERT_EQ(result.quarters.size(), 12u);
  EXPECT_NEAR(result.quarters[0].total(), 14.58, 1e-9);
  EXPECT_NEAR(result.quarters[1].total(), 15.777, 1e-9);
  EXPECT_NEAR(result.npv, 53.45, 0.01);
  EXPECT_NEAR(result.npv, RoiNpv(Case(0.30, 0.61, 0.49)), 1e-9);
}

// The published value follows only with the slip; the formula itself gives 53.
TEST(Roi, PublishedValueNeedsTheMisplacedParenthesis) {
  EXPECT_NEAR(RoiNpvWithPublishedSlip(Case(0.30, 0.61, 0.49)), 421.9, 0.3);
  EXPECT_NEAR(RoiNpvWithPublishedSlip(Case(0.22, 0.47, 0.20)), 158.3, 2);
  EXPECT_NEAR(RoiNpvWithPublishedSlip(Case(0.15, 0.32, 0.02)), -12.6, 0.1);
  EXPECT_NEAR(RoiNpv(Case(0.15, 0.32, 0.02)), -164.75, 0.01);
}

}  // namespace
}  // namespace tare::econ
