// Total cost of serving a demand over some years, for one option: hardware bought or rented, or a
// service paid by the token. Instances are counted hour by hour over the week.
//
// Amounts are in the scenario's currency. Everything is a pure function of value structs;
// PresentCost allocates nothing, because the Monte Carlo calls it millions of times. The formulas,
// with their worked example, are in docs/ECONOMICS.md, "Cost of serving".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "econ/demand.h"
#include "econ/discounting.h"

namespace tare::econ {

struct TrafficValues {
  double requests_per_day = 0;
  double input_tokens_per_request = 0;
  double output_tokens_per_request = 0;
  double growth_per_year = 0;  // share; year 1 has the stated demand

  double tokens_per_request() const { return input_tokens_per_request + output_tokens_per_request; }
};

struct OptionValues {
  // Capacity of one instance.
  double capacity_requests_per_second = 0;  // under the service level; 0: no own instances
  double target_utilisation = 1;            // share of the capacity that is planned with
  double min_instances = 1;                 // autoscaling floor
  double start_up_seconds = 0;              // an instance runs this long before it serves
  double goodput_share = 1;
  double input_time_share = 0;  // share of an instance's time that input tokens take

  // Bought hardware: paid when installed, sold at the residual value at the end of its life.
  double devices_per_instance = 1;
  double price_per_device = 0;
  double price_per_instance = 0;  // chassis, network
  double residual_share = 0;
  double life_years = 3;
  bool capital_recovery = false;  // depreciation with interest at the horizon's rate
  // Rented hardware: paid for the hours it runs.
  double rent_per_device_hour = 0;

  double idle_watts_per_device = 0;
  double load_watts_per_device = 0;
  double pue = 1;
  double energy_price_per_kwh = 0;

  // By the year.
  double licence_per_year = 0;
  double staff_people = 0;
  double cost_per_person_year = 0;
  double audits_per_year = 0;
  double network_per_year = 0;
  double hidden_per_year = 0;
  double fixed_per_year = 0;  // anything else
  // By the token.
  double cost_per_million_input = 0;
  double cost_per_million_output = 0;
  double price_per_million_tokens = 0;  // revenue
};

struct Horizon {
  int years = 3;
  Discounting discounting;  // of yearly flows
};

struct FleetUse {
  double peak_instances = 0;
  double mean_instances = 0;           // rented or switched on
  double instance_hours_per_year = 0;  // start-up time included
  double busy_share = 0;               // of the running instances' capacity
};
FleetUse FleetFor(const OptionValues& option, const TrafficValues& traffic, double demand_factor,
                  const DemandShape& shape);

struct YearCosts {
  double purchase = 0;      // hardware bought at the start of the year
  double depreciation = 0;  // of what is owned: not a cash flow
  double rent = 0;
  double energy = 0;
  double licence = 0;
  double staff = 0;
  double other = 0;   // audits, network, hidden, fixed
  double tokens = 0;  // paid by the token
  double revenue = 0;
  double running() const { return rent + energy + licence + staff + other + tokens; }
};

struct TcoResult {
  std::vector<YearCosts> years;
  double resale = 0;        // at the end of the horizon
  double present_cost = 0;  // discounted: purchases, running costs, less resale and revenue
  double npv = 0;           // -present_cost
  FleetUse first_year;
  // Total cost with depreciation, of the first year, per unit.
  double per_million_blended = 0;
  double per_million_input = 0;  // 0 when the input's share of time is not known
  double per_million_output = 0;
  double per_million_goodput = 0;
  double per_request = 0;
  double requests_per_second_per_money_month = 0;
  double cost_first_year = 0;
};

TcoResult TotalCost(const OptionValues& option, const TrafficValues& traffic,
                    const DemandShape& shape, const Horizon& horizon);
// The same present cost, without the rest.
double PresentCost(const OptionValues& option, const TrafficValues& traffic,
                   const DemandShape& shape, const Horizon& horizon);

// Yearly cash flows of choosing `b` instead of `a`: more outlay today, less cost later.
struct Switch {
  double outlay = 0;
  std::vector<double> savings;  // a year, resale in the last
  double npv = 0;
  std::optional<RateOfReturn> irr;
  std::optional<double> payback_years;
};
Switch SwitchFrom(const TcoResult& a, const TcoResult& b, const Horizon& horizon);

struct VolumePoint {
  double tokens_per_day = 0;
  double per_million = 0;
  double busy_share = 0;
};
// All-in cost of the first year at `count` volumes from `low` to `high` tokens a day.
std::vector<VolumePoint> CostCurve(const OptionValues& option, const TrafficValues& traffic,
                                   const DemandShape& shape, const Horizon& horizon, double low,
                                   double high, int count);

struct Crossing {
  double tokens_per_day = 0;
  bool b_cheaper_above = false;
};
// Volumes at which the first-year cost of a and b change places. Instances come in whole numbers,
// so there may be several.
std::vector<Crossing> BreakEvenVolumes(const OptionValues& a, const OptionValues& b,
                                       const TrafficValues& traffic, const DemandShape& shape,
                                       const Horizon& horizon, double low, double high);

}  // namespace tare::econ
