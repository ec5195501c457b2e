// The cost of serving against a scenario worked out by hand (docs/ECONOMICS.md, "Cost of serving").
#include "econ/tco.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <chrono>

#include "econ/capacity.h"
#include "econ/uncertainty.h"

namespace tare::econ {
namespace {

// 864,000 requests a day are 10 a second on average; half the day at 16, half at 4.
DemandShape TwoLevels() {
  std::array<double, 24> hours{};
  for (std::size_t i = 0; i < 24; ++i) hours[i] = i < 12 ? 4 : 16;
  return ShapeOf(DemandProfile::FromHours(hours));
}
TrafficValues Traffic() { return {864'000, 800, 200, 0}; }

OptionValues Rented() {
  OptionValues option;
  option.capacity_requests_per_second = 3;
  option.rent_per_device_hour = 2;
  return option;
}

// 16 / 3 -> 6 instances, 4 / 3 -> 2: mean 4, 35,040 instance-hours a year at 2 = 70,080.
TEST(Fleet, InstancesHourByHour) {
  const DemandShape shape = TwoLevels();
  const FleetUse use = FleetFor(Rented(), Traffic(), 1, shape);
  EXPECT_DOUBLE_EQ(use.peak_instances, 6);
  EXPECT_DOUBLE_EQ(use.mean_instances, 4);
  EXPECT_NEAR(use.instance_hours_per_year, 35'040, 1e-6);
  EXPECT_NEAR(use.busy_share, 10 / 12.0, 1e-12);
}

// 4 instances start once a day; with 30 minutes each: 2 instance-hours a day, 730 a year.
TEST(Fleet, StartUpDelayIsPaid) {
  OptionValues option = Rented();
  option.start_up_seconds = 1800;
  const DemandShape shape = TwoLevels();
  const FleetUse use = FleetFor(option, Traffic(), 1, shape);
  EXPECT_NEAR(use.instance_hours_per_year, 35'040 + 730, 1e-6);
}

TEST(Fleet, FloorKeepsInstancesRunning) {
  OptionValues option = Rented();
  option.min_instances = 5;
  const DemandShape shape = TwoLevels();
  EXPECT_DOUBLE_EQ(FleetFor(option, Traffic(), 1, shape).mean_instances, 5.5);
}

// 70,080 a year over 315.36 M requests: 0.00022222 a request, 0.2222 a million tokens (1,000 each).
TEST(Tco, RentedByTheHour) {
  const TcoResult result =
      TotalCost(Rented(), Traffic(), TwoLevels(), {3, {0.08, 1, Timing::kEnd}});
  EXPECT_NEAR(result.cost_first_year, 70'080, 1e-6);
  EXPECT_NEAR(result.per_request, 70'080 / 315.36e6, 1e-12);
  EXPECT_NEAR(result.per_million_blended, 0.222222, 1e-6);
  // 70,080 * (1/1.08 + 1/1.1664 + 1/1.259712) = 70,080 * 2.577097 = 180,602.9.
  EXPECT_NEAR(result.present_cost, 180'602.96, 0.1);
  EXPECT_EQ(result.per_million_input, 0);  // the split is not known
  // 10 requests/s for 5,840 a month.
  EXPECT_NEAR(result.requests_per_second_per_money_month, 10 / 5840.0, 1e-9);
}

// Bought: 6 instances of 8,000 in all = 48,000; residual 25 %, life 3: 12,000 a year depreciation.
// Energy: 6 on at 100 W idle = 5,256 kWh, busy 10/3 instances * 400 W more = 11,680 kWh;
// * PUE 1.5 * 0.10 = 2,540.40.
TEST(Tco, BoughtHardware) {
  OptionValues option;
  option.capacity_requests_per_second = 3;
  option.price_per_device = 7'000;
  option.price_per_instance = 1'000;
  option.residual_share = 0.25;
  option.idle_watts_per_device = 100;
  option.load_watts_per_device = 500;
  option.pue = 1.5;
  option.energy_price_per_kwh = 0.10;
  option.input_time_share = 0.3;
  const TcoResult result = TotalCost(option, Traffic(), TwoLevels(), {3, {0.08, 1, Timing::kEnd}});
  EXPECT_NEAR(result.years[0].purchase, 48'000, 1e-9);
  EXPECT_NEAR(result.years[1].purchase, 0, 1e-9);
  EXPECT_NEAR(result.years[0].depreciation, 12'000, 1e-9);
  EXPECT_NEAR(result.years[0].energy, 2'540.40, 0.01);
  EXPECT_NEAR(result.resale, 12'000, 1e-9);
  // 48,000 + 2,540.40 * 2.577097 - 12,000 / 1.259712 = 48,000 + 6,546.86 - 9,525.99.
  EXPECT_NEAR(result.present_cost, 45'020.87, 0.1);
  EXPECT_NEAR(result.cost_first_year, 14'540.40, 0.01);
  // Input: 30 % of 14,540.40 over 252,288 M tokens; output: 70 % over 63,072 M.
  EXPECT_NEAR(result.per_million_input, 0.0172902, 1e-6);
  EXPECT_NEAR(result.per_million_output, 0.1613756, 1e-6);
}

TEST(Tco, SwitchingFromRentToPurchase) {
  OptionValues bought;
  bought.capacity_requests_per_second = 3;
  bought.price_per_device = 20'000;
  const Horizon horizon{3, {0.08, 1, Timing::kEnd}};
  const TcoResult a = TotalCost(Rented(), Traffic(), TwoLevels(), horizon);
  const TcoResult b = TotalCost(bought, Traffic(), TwoLevels(), horizon);
  const Switch change = SwitchFrom(a, b, horizon);
  EXPECT_NEAR(change.outlay, 120'000, 1e-9);
  EXPECT_NEAR(*change.payback_years, 120'000 / 70'080.0, 1e-9);
  EXPECT_NEAR(change.npv, 180'602.96 - 120'000, 0.1);
  EXPECT_GT(change.irr->rate_per_year, 0.3);
}

// One instance (17,520 a year) against 1.00 a million tokens: equal at 17,520 M a year,
// 48 M tokens a day.
TEST(Tco, BreakEvenAgainstPaidByTheToken) {
  OptionValues service;
  service.cost_per_million_input = 1;
  service.cost_per_million_output = 1;
  const auto crossings = BreakEvenVolumes(service, Rented(), Traffic(),
                                          ShapeOf(DemandProfile::Constant()), {1, {}}, 1e6, 1e9);
  ASSERT_EQ(crossings.size(), 1u);
  EXPECT_NEAR(crossings[0].tokens_per_day, 48e6, 1);
  EXPECT_TRUE(crossings[0].b_cheaper_above);
}

// The same instance at 2 % and at 80 % of its capacity: forty times the cost a token.
TEST(Tco, IdleHardwareCostsAnOrderOfMagnitudeMore) {
  const double full = 3 * 86'400 * 1'000.0;  // tokens a day one instance can serve
  const auto curve = CostCurve(Rented(), Traffic(), ShapeOf(DemandProfile::Constant()), {1, {}},
                               0.02 * full, 0.80 * full, 2);
  EXPECT_NEAR(curve[0].per_million / curve[1].per_million, 40, 1e-6);
  EXPECT_NEAR(curve[0].busy_share, 0.02, 1e-9);
}

TEST(Tco, NothingGetsCheaperByAddingCosts) {
  EXPECT_TRUE(rc::check("present cost rises with every price", [] {
    OptionValues option = Rented();
    option.price_per_device = *rc::gen::inRange(0, 50'000);
    option.idle_watts_per_device = *rc::gen::inRange(0, 100);
    option.load_watts_per_device = option.idle_watts_per_device + *rc::gen::inRange(0, 500);
    TrafficValues traffic = Traffic();
    traffic.requests_per_day = *rc::gen::inRange(1, 10'000'000);
    traffic.growth_per_year = *rc::gen::inRange(0, 100) / 100.0;
    const Horizon horizon{*rc::gen::inRange(1, 8), {0.1, 1, Timing::kMiddle}};
    const double base = TotalCost(option, traffic, TwoLevels(), horizon).present_cost;
    for (double OptionValues::*member :
         {&OptionValues::price_per_device, &OptionValues::rent_per_device_hour,
          &OptionValues::energy_price_per_kwh, &OptionValues::licence_per_year,
          &OptionValues::cost_per_million_output, &OptionValues::min_instances}) {
      OptionValues dearer = option;
      dearer.*member += 1;
      RC_ASSERT(TotalCost(dearer, traffic, TwoLevels(), horizon).present_cost >= base - 1e-6);
    }
  }));
}

// A million draws of a three-year scenario with two options, under two seconds on one core. The
// limit here is loose, for shared machines; the benchmark prints the figure.
TEST(Tco, MillionDrawsAreQuick) {
  const DemandShape shape = TwoLevels();
  const Horizon horizon{3, {0.08, 1, Timing::kEnd}};
  std::vector<UncertainInput> inputs;
  for (int i = 0; i < 6; ++i) {
    inputs.push_back({"x", 2, {Shape::kTriangular, 1, 2, 4}, "", ""});
    inputs.push_back({"y", 3, {Shape::kNormal, 3, 0.2, 0}, "", ""});
  }
  const Model model = [&](std::span<const double> in, std::span<double> out) {
    for (std::size_t option = 0; option < 2; ++option) {
      OptionValues values = Rented();
      values.rent_per_device_hour = in[option];
      values.capacity_requests_per_second = in[option * 2 + 1];
      out[option] = PresentCost(values, Traffic(), shape, horizon);
    }
  };
  const auto start = std::chrono::steady_clock::now();
  const MonteCarloResult result = MonteCarlo(model, inputs, 2, 1'000'000, 1, nullptr);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(result.draws, 1'000'000u);
  EXPECT_LT(seconds, 20);
  RecordProperty("seconds", std::to_string(seconds));
}

TEST(Capacity, FromTheMeasuredCurve) {
  const std::array<LoadPoint, 4> curve{
      LoadPoint{8, 0.9, 0.05, 5, 1, "measured"}, LoadPoint{2, 0.2, 0.03, 3, 1, "measured"},
      LoadPoint{4, 0.4, 0.04, 4, 1, "measured"}, LoadPoint{12, 3.0, 0.09, 9, 0.4, "measured"}};
  // 0.4 s at 4/s, 0.9 s at 8/s: 0.5 s is a fifth of the way, 4.8/s.
  auto capacity = CapacityUnder(curve, {0.5});
  ASSERT_TRUE(capacity.has_value());
  EXPECT_NEAR(capacity->requests_per_second, 4.8, 1e-9);
  EXPECT_TRUE(capacity->interpolated);
  EXPECT_FALSE(CapacityUnder(curve, {0.1}).has_value());
  EXPECT_TRUE(CapacityUnder(curve, {})->at_the_end);
  EXPECT_NEAR(CapacityUnder(curve, {})->requests_per_second, 12, 1e-9);
}

}  // namespace
}  // namespace tare::econ
