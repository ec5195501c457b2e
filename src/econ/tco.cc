#include "econ/tco.h"

#include <algorithm>
#include <cmath>

#include "econ/depreciation.h"
#include "econ/energy.h"
#include "econ/volume_cost.h"

namespace tare::econ {
namespace {

constexpr double kSecondsPerDay = 86400;
constexpr double kWeeksPerYear = kHoursPerYear / kHoursPerWeek;
constexpr double kMillion = 1e6;
constexpr double kMonthsPerYear = 12;

double RequestsPerYear(const TrafficValues& traffic, double factor) {
  return traffic.requests_per_day * kDaysPerYear * factor;
}

// Counts instances for demands in requests a second.
class InstanceCounter {
 public:
  explicit InstanceCounter(const OptionValues& option)
      : per_request_(1 / (option.capacity_requests_per_second * option.target_utilisation)),
        floor_(option.min_instances) {}
  double operator()(double requests_per_second) const {
    // A hair above a whole number is that number, whatever the rounding of the product.
    return std::max(floor_, std::ceil(requests_per_second * per_request_ - 1e-9));
  }

 private:
  double per_request_;
  double floor_;
};

bool Owned(const OptionValues& option) {
  return option.price_per_device > 0 || option.price_per_instance > 0;
}

double PurchasePrice(const OptionValues& option) {
  return option.devices_per_instance * option.price_per_device + option.price_per_instance;
}

YearCosts RunningCosts(const OptionValues& option, const TrafficValues& traffic, double factor,
                       const FleetUse& fleet) {
  YearCosts costs;
  const double requests = RequestsPerYear(traffic, factor);
  if (option.rent_per_device_hour > 0) {
    costs.rent =
        fleet.instance_hours_per_year * option.devices_per_instance * option.rent_per_device_hour;
  }
  if (option.energy_price_per_kwh > 0) {
    // Bought devices stay on at idle power; rented ones only while they run.
    const double on_hours =
        Owned(option) ? fleet.peak_instances * kHoursPerYear : fleet.instance_hours_per_year;
    const double busy_hours = fleet.instance_hours_per_year * fleet.busy_share;
    const double idle = option.idle_watts_per_device * on_hours;
    const double load = (option.load_watts_per_device - option.idle_watts_per_device) * busy_hours;
    costs.energy = (idle + load) * option.devices_per_instance * option.pue / 1000 *
                   option.energy_price_per_kwh;
  }
  costs.licence = option.licence_per_year;
  costs.staff = option.staff_people * option.cost_per_person_year;
  costs.other = option.audits_per_year + option.network_per_year + option.hidden_per_year +
                option.fixed_per_year;
  costs.tokens = requests / kMillion *
                 (traffic.input_tokens_per_request * option.cost_per_million_input +
                  traffic.output_tokens_per_request * option.cost_per_million_output);
  costs.revenue =
      requests * traffic.tokens_per_request() / kMillion * option.price_per_million_tokens;
  return costs;
}

// Walks the years: calls use(year from 1, costs, fleet); returns the resale value at the end.
template <typename Use>
double ForEachYear(const OptionValues& option, const TrafficValues& traffic,
                   const DemandShape& shape, const Horizon& horizon, Use use) {
  double factor = 1;
  double owned = 0;
  double resale = 0;
  FleetUse fleet;
  for (int year = 1; year <= horizon.years; ++year) {
    if (year == 1 || traffic.growth_per_year != 0) {
      fleet = FleetFor(option, traffic, factor, shape);
    }
    YearCosts costs = RunningCosts(option, traffic, factor, fleet);
    if (Owned(option)) {
      const double price = PurchasePrice(option);
      const double bought = std::max(0.0, fleet.peak_instances - owned);
      owned += bought;
      costs.purchase = bought * price;
      const Asset each{price, price * option.residual_share, option.life_years};
      costs.depreciation =
          owned * (option.capital_recovery
                       ? CapitalRecoveryPerYear(each, horizon.discounting.rate_per_year)
                       : StraightLinePerYear(each));
      resale += bought * BookValue(each, horizon.years - year + 1);
      // What was bought for an earlier year is replaced when its life ends inside the horizon.
      if (year > 1 && std::fmod(year - 1, option.life_years) == 0 && owned > bought) {
        const double replaced = owned - bought;
        costs.purchase += replaced * (price - each.residual);
        resale += replaced * (BookValue(each, horizon.years - year + 1) - each.residual);
      }
    }
    use(year, costs, fleet);
    factor *= 1 + traffic.growth_per_year;
  }
  return resale;
}

}  // namespace

FleetUse FleetFor(const OptionValues& option, const TrafficValues& traffic, double demand_factor,
                  const DemandShape& shape) {
  FleetUse use;
  if (option.capacity_requests_per_second <= 0) return use;
  const double mean_rate = traffic.requests_per_day / kSecondsPerDay * demand_factor;
  const InstanceCounter instances(option);
  double hours = 0;
  for (const DemandLevel& level : shape.levels) {
    const double count = instances(mean_rate * level.relative);
    use.peak_instances = std::max(use.peak_instances, count);
    hours += count * level.hours_per_week;
  }
  use.mean_instances = hours / kHoursPerWeek;
  use.busy_share = mean_rate / (use.mean_instances * option.capacity_requests_per_second);
  if (option.start_up_seconds > 0) {
    // Each instance added from one hour to the next starts before it.
    double added = 0;
    for (const DemandRise& rise : shape.rises) {
      added +=
          (instances(mean_rate * rise.to) - instances(mean_rate * rise.from)) * rise.times_per_week;
    }
    hours += added * option.start_up_seconds / 3600;
  }
  use.instance_hours_per_year = hours * kWeeksPerYear;
  return use;
}

double PresentCost(const OptionValues& option, const TrafficValues& traffic,
                   const DemandShape& shape, const Horizon& horizon) {
  const double step = 1 / (1 + horizon.discounting.rate_per_year);
  double year_start = 1;
  const double within = horizon.discounting.timing == Timing::kStart    ? 1
                        : horizon.discounting.timing == Timing::kMiddle ? std::sqrt(step)
                                                                        : step;
  double cost = 0;
  const double resale = ForEachYear(
      option, traffic, shape, horizon, [&](int, const YearCosts& costs, const FleetUse&) {
        cost +=
            costs.purchase * year_start + (costs.running() - costs.revenue) * year_start * within;
        year_start *= step;
      });
  return cost - resale * year_start;
}

TcoResult TotalCost(const OptionValues& option, const TrafficValues& traffic,
                    const DemandShape& shape, const Horizon& horizon) {
  TcoResult result;
  result.resale = ForEachYear(option, traffic, shape, horizon,
                              [&](int year, const YearCosts& costs, const FleetUse& fleet) {
                                if (year == 1) result.first_year = fleet;
                                result.years.push_back(costs);
                              });
  result.present_cost = PresentCost(option, traffic, shape, horizon);
  result.npv = -result.present_cost;

  const YearCosts& first = result.years.front();
  const double total = first.running() + first.depreciation;
  const double requests = RequestsPerYear(traffic, 1);
  const double input_millions = requests * traffic.input_tokens_per_request / kMillion;
  const double output_millions = requests * traffic.output_tokens_per_request / kMillion;
  result.cost_first_year = total;
  result.per_request = total / requests;
  result.per_million_blended = total / (input_millions + output_millions);
  result.per_million_goodput = result.per_million_blended / option.goodput_share;
  const double own = total - first.tokens;
  const bool split_known = own == 0 || option.input_time_share > 0;
  if (split_known && input_millions > 0) {
    result.per_million_input =
        option.cost_per_million_input + own * option.input_time_share / input_millions;
  }
  if (split_known && output_millions > 0) {
    result.per_million_output =
        option.cost_per_million_output + own * (1 - option.input_time_share) / output_millions;
  }
  result.requests_per_second_per_money_month =
      traffic.requests_per_day / kSecondsPerDay / (total / kMonthsPerYear);
  return result;
}

Switch SwitchFrom(const TcoResult& a, const TcoResult& b, const Horizon& horizon) {
  Switch change;
  change.outlay = b.years.front().purchase - a.years.front().purchase;
  for (std::size_t i = 0; i < a.years.size(); ++i) {
    double saving =
        a.years[i].running() - a.years[i].revenue - b.years[i].running() + b.years[i].revenue;
    if (i > 0) saving += a.years[i].purchase - b.years[i].purchase;
    if (i + 1 == a.years.size()) saving += b.resale - a.resale;
    change.savings.push_back(saving);
  }
  change.npv = a.present_cost - b.present_cost;
  if (change.outlay > 0) {
    change.irr = InternalRateOfReturn(change.outlay, change.savings, horizon.discounting);
    change.payback_years = PaybackYears(change.outlay, change.savings, {0, 1, Timing::kEnd});
  }
  return change;
}

std::vector<VolumePoint> CostCurve(const OptionValues& option, const TrafficValues& traffic,
                                   const DemandShape& shape, const Horizon& horizon, double low,
                                   double high, int count) {
  Horizon one_year = horizon;
  one_year.years = 1;
  std::vector<VolumePoint> points;
  for (int i = 0; i < count; ++i) {
    const double volume = low * std::pow(high / low, static_cast<double>(i) / (count - 1));
    TrafficValues at = traffic;
    at.requests_per_day = volume / traffic.tokens_per_request();
    const TcoResult result = TotalCost(option, at, shape, one_year);
    points.push_back({volume, result.per_million_blended, result.first_year.busy_share});
  }
  return points;
}

std::vector<Crossing> BreakEvenVolumes(const OptionValues& a, const OptionValues& b,
                                       const TrafficValues& traffic, const DemandShape& shape,
                                       const Horizon& horizon, double low, double high) {
  Horizon one_year = horizon;
  one_year.years = 1;
  auto difference = [&](double volume) {
    TrafficValues at = traffic;
    at.requests_per_day = volume / traffic.tokens_per_request();
    return TotalCost(b, at, shape, one_year).cost_first_year -
           TotalCost(a, at, shape, one_year).cost_first_year;
  };
  constexpr int kSteps = 400;
  std::vector<Crossing> crossings;
  double left = low;
  double left_value = difference(left);
  for (int i = 1; i <= kSteps; ++i) {
    const double right = low * std::pow(high / low, static_cast<double>(i) / kSteps);
    const double right_value = difference(right);
    if (left_value != 0 && right_value != 0 && (left_value > 0) != (right_value > 0)) {
      double inner = left;
      double outer = right;
      for (int halving = 0; halving < 60; ++halving) {
        const double middle = 0.5 * (inner + outer);
        ((difference(middle) > 0) == (left_value > 0) ? inner : outer) = middle;
      }
      crossings.push_back({0.5 * (inner + outer), right_value < 0});
    }
    left = right;
    left_value = right_value;
  }
  return crossings;
}

}  // namespace tare::econ
