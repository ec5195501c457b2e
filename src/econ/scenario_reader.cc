#include "econ/scenario_reader.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "econ/quantity_reader.h"

namespace tare::econ {
namespace {

using config::Value;

Distribution ReadDistribution(const Value& map, double value, std::string_view unit,
                              std::string_view currency) {
  Distribution distribution;
  int given = 0;
  auto numbers = [&](const Value& list, std::size_t count) {
    std::vector<double> values;
    for (const Value& item : list.List()) values.push_back(ReadQuantity(item, unit, currency));
    if (values.size() != count) {
      list.AddError("takes {} values, {} given", count, values.size());
      values.resize(count, value);
    }
    if (!std::is_sorted(values.begin(), values.end())) list.AddError("values must not fall");
    return values;
  };
  if (const Value uniform = map["uniform"]; uniform.present()) {
    const auto v = numbers(uniform, 2);
    distribution = {Shape::kUniform, v[0], v[1], 0};
    ++given;
  }
  if (const Value triangular = map["triangular"]; triangular.present()) {
    const auto v = numbers(triangular, 3);
    distribution = {Shape::kTriangular, v[0], v[1], v[2]};
    ++given;
  }
  if (const Value normal = map["normal"]; normal.present()) {
    distribution = {Shape::kNormal, value, ReadQuantity(normal, unit, currency), 0};
    ++given;
  }
  if (const Value log_normal = map["log_normal"]; log_normal.present()) {
    distribution = {Shape::kLogNormal, value, ReadQuantity(log_normal, "1"), 0};
    if (value <= 0) log_normal.AddError("a log-normal value must be above zero");
    ++given;
  }
  if (const Value range = map["plus_minus"]; range.present()) {
    const double reach = std::abs(value) * ReadQuantity(range, "1");
    distribution = {Shape::kTriangular, value - reach, value, value + reach};
    ++given;
  }
  if (given > 1) map.AddError("has {} distributions, one is wanted", given);
  if (distribution.b < 0 &&
      (distribution.shape == Shape::kNormal || distribution.shape == Shape::kLogNormal)) {
    map.AddError("a deviation must not be negative");
  }
  return distribution;
}

struct Bounds {
  double low = 0;
  double high = 1e18;
};

class Reader {
 public:
  Reader(Scenario& scenario, const Catalog& catalog, const RunLoader& load_run)
      : scenario_(scenario), catalog_(catalog), load_run_(load_run) {}

  void Read(const Value& root) {
    scenario_.name = root["name"].String();
    scenario_.currency = root["currency"].String();
    if (!ParseQuantity("1 " + scenario_.currency)) {
      root["currency"].AddError("a currency is three capital letters, such as USD");
      scenario_.currency = "XXX";
    }
    scenario_.horizon.years = static_cast<int>(root["years"].IntOr(3, 1, 30));
    ReadDiscounting(root["discounting"]);
    ReadTraffic(root["traffic"]);
    const Value level = root["service_level"];
    if (level.present()) {
      level_.ttft_p95_seconds = ReadQuantityOr(level["ttft_p95"], "s", INFINITY);
      level_.itl_p95_seconds = ReadQuantityOr(level["itl_p95"], "s", INFINITY);
      level_.e2e_p95_seconds = ReadQuantityOr(level["e2e_p95"], "s", INFINITY);
    }
    for (const Value& item : root["options"].List()) ReadOption(item);
    if (scenario_.options.empty()) root["options"].AddError("a scenario needs an option");
  }

 private:
  // Reads a number into the list of inputs; returns its place.
  std::size_t Add(const Value& value, std::string_view unit, double low, double high) {
    UncertainInput input = ReadUncertain(value, unit, scenario_.currency);
    if (input.value < low || input.value > high) {
      value.AddError("must be {} {}", input.value < low ? "at least" : "at most",
                     input.value < low ? low : high);
      input.value = low;
    }
    scenario_.inputs.push_back(std::move(input));
    scenario_.units.emplace_back(unit);
    return scenario_.inputs.size() - 1;
  }

  void Option(const Value& value, std::string_view unit, double OptionValues::*member,
              Bounds bounds = {}) {
    if (!value.present()) return;
    const std::size_t input = Add(value, unit, bounds.low, bounds.high);
    current_->values.*member = scenario_.inputs[input].value;
    if (scenario_.inputs[input].uncertain()) {
      scenario_.option_bindings.push_back({input, scenario_.options.size(), member});
    }
  }

  void Traffic(const Value& value, std::string_view unit, double TrafficValues::*member,
               Bounds bounds = {}) {
    const std::size_t input = Add(value, unit, bounds.low, bounds.high);
    scenario_.traffic.*member = scenario_.inputs[input].value;
    if (scenario_.inputs[input].uncertain()) scenario_.traffic_bindings.push_back({input, member});
  }

  void ReadDiscounting(const Value& value) {
    Discounting& discounting = scenario_.horizon.discounting;
    const std::size_t input = Add(value["rate"], "1/year", -0.99, 10);
    discounting.rate_per_year = scenario_.inputs[input].value;
    if (scenario_.inputs[input].uncertain()) scenario_.rate_input = input;
    discounting.timing = value["timing"].Choice<Timing>(
        {{"start", Timing::kStart}, {"middle", Timing::kMiddle}, {"end", Timing::kEnd}});
  }

  void ReadTraffic(const Value& value) {
    Traffic(value["requests"], "requests/day", &TrafficValues::requests_per_day, {1e-6});
    Traffic(value["input"], "tokens/request", &TrafficValues::input_tokens_per_request);
    Traffic(value["output"], "tokens/request", &TrafficValues::output_tokens_per_request);
    if (const Value growth = value["growth"]; growth.present()) {
      Traffic(growth, "1/year", &TrafficValues::growth_per_year, {-0.99, 100});
      // In the unit of the table, a share a year.
    }
    if (scenario_.traffic.tokens_per_request() <= 0) {
      value.AddError("a request needs input or output tokens");
      scenario_.traffic.output_tokens_per_request = 1;
    }
    scenario_.shape = ShapeOf(DemandProfile::Constant());
    const std::vector<Value> hours = value["profile"].ListOrEmpty();
    if (hours.empty()) return;
    std::vector<double> relative;
    double sum = 0;
    for (const Value& hour : hours) {
      relative.push_back(hour.Number(0, 1e12));
      sum += relative.back();
    }
    if ((relative.size() != 24 && relative.size() != kHoursPerWeek) || sum <= 0) {
      value["profile"].AddError("takes 24 or 168 hourly values, not all zero; {} given",
                                relative.size());
      return;
    }
    scenario_.shape = ShapeOf(DemandProfile::FromHours(relative));
  }

  void ReadCapacity(const Value& item) {
    const Value runs = item["runs"];
    const Value curve = runs.present() ? runs : item["load_curve"];
    if (!curve.present()) {
      Option(item["capacity"], "requests/s", &OptionValues::capacity_requests_per_second, {1e-9});
      return;
    }
    if (item["capacity"].present() || (runs.present() && item["load_curve"].present())) {
      curve.AddError("give one of capacity, load_curve and runs");
    }
    const std::vector<LoadPoint> points = runs.present() ? ReadRuns(runs) : ReadPoints(curve);
    current_->measured = CapacityUnder(points, level_);
    if (!current_->measured) {
      curve.AddError("no point meets the service level: this option cannot serve it");
      return;
    }
    current_->values.capacity_requests_per_second = current_->measured->requests_per_second;
    current_->values.goodput_share = current_->measured->goodput_share;
  }

  std::vector<LoadPoint> ReadRuns(const Value& runs) {
    std::vector<LoadPoint> points;
    for (const Value& run : runs.List()) {
      const std::string path = run.String();
      if (!load_run_) {
        run.AddError("run records cannot be read here");
        continue;
      }
      Result<LoadPoint> point = load_run_(path);
      if (point) {
        ExpectPercentiles(run, path, *point);
        points.push_back(*std::move(point));
      } else {
        run.AddError("'{}' {}", path, point.error().message);
      }
    }
    return points;
  }

  // A run with too few answers has no P95; it must not read as one that misses the level.
  void ExpectPercentiles(const Value& run, const std::string& path, const LoadPoint& point) {
    const std::tuple<const char*, double, double> wanted[] = {
        {"time to first token", level_.ttft_p95_seconds, point.ttft_p95_seconds},
        {"time between tokens", level_.itl_p95_seconds, point.itl_p95_seconds},
        {"whole answer", level_.e2e_p95_seconds, point.e2e_p95_seconds}};
    for (const auto& [what, level, measured] : wanted) {
      if (std::isfinite(level) && !std::isfinite(measured)) {
        run.AddError("'{}' answered too few requests for a P95 of the {}; measure longer", path,
                     what);
      }
    }
  }

  std::vector<LoadPoint> ReadPoints(const Value& curve) {
    std::vector<LoadPoint> points;
    for (const Value& value : curve.List()) {
      LoadPoint point;
      point.requests_per_second = ReadQuantity(value["rate"], "requests/s");
      point.ttft_p95_seconds = ReadQuantityOr(value["ttft_p95"], "s", 0);
      point.itl_p95_seconds = ReadQuantityOr(value["itl_p95"], "s", 0);
      point.e2e_p95_seconds = ReadQuantityOr(value["e2e_p95"], "s", 0);
      point.goodput_share = ReadQuantityOr(value["goodput"], "1", 1);
      point.tag = value["tag"].ChoiceOr<std::string>(
          "measured", {{"measured", "measured"}, {"simulated", "simulated"}});
      points.push_back(point);
    }
    return points;
  }

  // A catalogue device lends its power; price and idle power are the scenario's.
  void ReadDevice(const Value& value) {
    if (!value.present()) return;
    Result<DeviceFacts> device = catalog_.FindDevice(value.String());
    if (!device) {
      value.AddError("{}", device.error().message);
      return;
    }
    current_->values.load_watts_per_device = device->load_watts;
    current_->values.idle_watts_per_device = device->idle_watts;
  }

  void ReadOption(const Value& item) {
    ScenarioOption option;
    current_ = &option;
    option.name = item["name"].String();
    for (const ScenarioOption& other : scenario_.options) {
      if (other.name == option.name) item["name"].AddError("two options have this name");
    }
    ReadCapacity(item);
    ReadDevice(item["device"]);
    Option(item["devices"], "1", &OptionValues::devices_per_instance, {1e-9});
    Option(item["price"], "MONEY", &OptionValues::price_per_device);
    Option(item["instance_price"], "MONEY", &OptionValues::price_per_instance);
    Option(item["residual"], "1", &OptionValues::residual_share, {0, 1});
    Option(item["life"], "year", &OptionValues::life_years, {0.1, 100});
    option.values.capital_recovery = item["depreciation"].ChoiceOr<bool>(
        false, {{"straight_line", false}, {"capital_recovery", true}});
    Option(item["rent"], "MONEY/h", &OptionValues::rent_per_device_hour);
    if (const Value energy = item["energy"]; energy.present()) {
      Option(energy["price"], "MONEY/kWh", &OptionValues::energy_price_per_kwh);
      Option(energy["pue"], "1", &OptionValues::pue, {1, 10});
      Option(energy["idle"], "W", &OptionValues::idle_watts_per_device);
      Option(energy["load"], "W", &OptionValues::load_watts_per_device);
      if (option.values.load_watts_per_device < option.values.idle_watts_per_device) {
        energy.AddError("load power is below idle power");
      }
    }
    Option(item["licence"], "MONEY/year", &OptionValues::licence_per_year);
    if (const Value staff = item["staff"]; staff.present()) {
      Option(staff["people"], "people", &OptionValues::staff_people);
      Option(staff["cost"], "MONEY/person/year", &OptionValues::cost_per_person_year);
    }
    Option(item["audits"], "MONEY/year", &OptionValues::audits_per_year);
    Option(item["network"], "MONEY/year", &OptionValues::network_per_year);
    Option(item["hidden"], "MONEY/year", &OptionValues::hidden_per_year);
    Option(item["fixed"], "MONEY/year", &OptionValues::fixed_per_year);
    if (const Value tokens = item["tokens"]; tokens.present()) {
      Option(tokens["input"], "MONEY/Mtoken", &OptionValues::cost_per_million_input);
      Option(tokens["output"], "MONEY/Mtoken", &OptionValues::cost_per_million_output);
    }
    Option(item["revenue"], "MONEY/Mtoken", &OptionValues::price_per_million_tokens);
    if (const Value scaling = item["autoscaling"]; scaling.present()) {
      Option(scaling["min_instances"], "1", &OptionValues::min_instances, {0, 1e6});
      Option(scaling["start_up"], "s", &OptionValues::start_up_seconds);
      Option(scaling["target"], "1", &OptionValues::target_utilisation, {0.01, 1});
    }
    Option(item["input_time_share"], "1", &OptionValues::input_time_share, {0, 1});
    Option(item["goodput"], "1", &OptionValues::goodput_share, {0.001, 1});
    const OptionValues& values = option.values;
    if (values.capacity_requests_per_second <= 0 &&
        (values.price_per_device > 0 || values.rent_per_device_hour > 0)) {
      item.AddError("hardware needs a capacity, a load_curve or runs to count instances");
    }
    scenario_.options.push_back(std::move(option));
    current_ = nullptr;
  }

  Scenario& scenario_;
  const Catalog& catalog_;
  const RunLoader& load_run_;
  ServiceLevel level_;
  ScenarioOption* current_ = nullptr;
};

}  // namespace

UncertainInput ReadUncertain(const Value& value, std::string_view unit, std::string_view currency) {
  UncertainInput input;
  input.name = value.path();
  if (!value.is_map()) {
    input.value = ReadQuantity(value, unit, currency);
    input.distribution.a = input.value;
    return input;
  }
  input.value = ReadQuantity(value["value"], unit, currency);
  input.source = value["source"].StringOr("");
  input.date = value["date"].StringOr("");
  input.distribution = ReadDistribution(value, input.value, unit, currency);
  if (!input.uncertain()) input.distribution.a = input.value;
  return input;
}

Result<Scenario> ReadScenario(const config::Document& document, const Catalog& catalog,
                              const RunLoader& load_run) {
  Scenario scenario;
  Reader(scenario, catalog, load_run).Read(document.root());
  TARE_RETURN_IF_ERROR(document.Finish());
  return scenario;
}

}  // namespace tare::econ
