#include "sim/plan.h"

#include <algorithm>
#include <set>

#include "base/files.h"

namespace tare::sim {
namespace {

using config::Value;
using load::ArrivalSpec;

constexpr std::int64_t kMostTokens = 10'000'000;
constexpr std::int64_t kMostReplicas = 10'000;

std::filesystem::path PathIn(const std::filesystem::path& folder, const std::string& path) {
  return std::filesystem::path(path).is_absolute() ? std::filesystem::path(path) : folder / path;
}

std::optional<double> OptionalSeconds(const Value& value) {
  if (!value.present()) return std::nullopt;
  return ToSeconds(value.Duration());
}

// "traffic: {users: 8}", "{rate: 5/s, arrival: gamma, cv: 3}" or "{trace: FILE, repeat: true}".
void ReadArrival(const Value& traffic, const std::filesystem::path& folder, TrafficSpec& spec) {
  ArrivalSpec& arrival = spec.arrival;
  const bool users = traffic["users"].present(), rate = traffic["rate"].present(),
             trace = traffic["trace"].present();
  if (users + rate + trace != 1) {
    traffic.AddError("give one of 'users' (who wait for their answers), 'rate' and 'trace'");
    return;
  }
  if (users) {
    arrival.kind = ArrivalSpec::Kind::kClosed;
    arrival.users = static_cast<int>(traffic["users"].Int(1, 1'000'000));
    arrival.think_time = traffic["think_time"].DurationOr(Nanos{0});
  } else if (rate) {
    arrival.kind = traffic["arrival"].ChoiceOr<ArrivalSpec::Kind>(
        ArrivalSpec::Kind::kPoisson, {{"poisson", ArrivalSpec::Kind::kPoisson},
                                      {"constant", ArrivalSpec::Kind::kConstant},
                                      {"gamma", ArrivalSpec::Kind::kGamma}});
    arrival.rate = traffic["rate"].RatePerSecond();
    arrival.cv = traffic["cv"].NumberOr(1, 0.01, 100);
    const Value burst = traffic["burst"];
    if (burst.present()) {
      arrival.burst_factor = burst["factor"].Number(0, 1000);
      arrival.burst_for = burst["for"].Duration();
      arrival.burst_every = burst["every"].Duration();
    }
    const Value ramp = traffic["ramp"];
    if (ramp.present()) {
      arrival.ramp_to = ramp["to"].RatePerSecond();
      arrival.ramp_over = ramp["over"].Duration();
    }
  } else {
    arrival.kind = ArrivalSpec::Kind::kTrace;
    arrival.trace = PathIn(folder, traffic["trace"].String());
    arrival.speedup = traffic["speedup"].NumberOr(1, 1e-6, 1e6);
    spec.repeat = traffic["repeat"].BoolOr(false);
    spec.max_input_tokens = static_cast<int>(traffic["max_input_tokens"].IntOr(0, 0, kMostTokens));
    spec.max_output_tokens =
        static_cast<int>(traffic["max_output_tokens"].IntOr(0, 0, kMostTokens));
    spec.batch_share = traffic["batch_share"].FractionOr(0);
  }
}

TrafficClass ReadClass(const Value& value) {
  TrafficClass kind;
  kind.tier = value["tier"].ChoiceOr<engine::Tier>(
      engine::Tier::kInteractive,
      {{"interactive", engine::Tier::kInteractive}, {"batch", engine::Tier::kBatch}});
  kind.input_tokens = static_cast<int>(value["input_tokens"].Int(1, kMostTokens));
  kind.output_tokens = static_cast<int>(value["output_tokens"].Int(1, kMostTokens));
  kind.length_cv = value["length_cv"].NumberOr(0, 0, 10);
  kind.shared_prefix = value["shared_prefix"].FractionOr(0);
  return kind;
}

void ReadTraffic(const Value& traffic, const std::filesystem::path& folder, TrafficSpec& spec) {
  ReadArrival(traffic, folder, spec);
  spec.seed = static_cast<std::uint64_t>(traffic["seed"].IntOr(1, 1));
  if (spec.arrival.kind == ArrivalSpec::Kind::kTrace) return;
  if (!traffic["classes"].present()) {
    spec.classes = {ReadClass(traffic)};
    return;
  }
  for (const auto& [name, value] : traffic["classes"].Entries()) {
    TrafficClass kind = ReadClass(value);
    kind.name = name;
    kind.share = value["share"].NumberOr(1, 0, 1e9);
    spec.classes.push_back(std::move(kind));
  }
}

std::optional<Autoscale> ReadAutoscale(const Value& value, int replicas) {
  if (!value.present()) return std::nullopt;
  Autoscale rule;
  rule.min = static_cast<int>(value["min"].IntOr(1, 1, kMostReplicas));
  rule.max = static_cast<int>(value["max"].Int(1, kMostReplicas));
  rule.target_in_flight = value["target_in_flight"].Number(0.01, 1e6);
  rule.every = value["every"].DurationOr(rule.every);
  rule.down_after = value["down_after"].DurationOr(rule.down_after);
  if (rule.min > rule.max) value.AddError("min {} is above max {}", rule.min, rule.max);
  if (replicas < rule.min || replicas > rule.max) {
    value.AddError("replicas {} is not between min {} and max {}", replicas, rule.min, rule.max);
  }
  if (rule.every <= Nanos{0}) value.AddError("every must be above 0");
  return rule;
}

void ReadIncidents(const Value& list, const std::vector<ReplicaPlan>& groups,
                   std::vector<Incident>& incidents) {
  for (const Value& value : list.ListOrEmpty()) {
    Incident incident;
    incident.at = value["at"].Duration();
    const bool fail = value["fail"].present();
    if (fail == value["drain"].present()) {
      value.AddError("give one of 'fail' and 'drain', each with a group's name");
      continue;
    }
    incident.kind = fail ? Incident::Kind::kFail : Incident::Kind::kDrain;
    const std::string name = value[fail ? "fail" : "drain"].String();
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const ReplicaPlan& g) { return g.name == name; });
    if (group == groups.end()) {
      value.AddError("there are no replicas named '{}'", name);
      continue;
    }
    incident.group = static_cast<std::size_t>(group - groups.begin());
    const int most =
        std::max(group->replicas, group->autoscale ? group->autoscale->max : group->replicas);
    incident.replica = static_cast<int>(value["replica"].IntOr(0, 0, most - 1));
    incident.lasts = value["for"].DurationOr(Nanos{0});
    incidents.push_back(incident);
  }
}

}  // namespace

ReplicaPlan ReadReplicaPlan(const Value& value, const std::filesystem::path& folder) {
  ReplicaPlan plan;
  plan.replicas = static_cast<int>(value["replicas"].IntOr(1, 1, kMostReplicas));
  if (value["calibration"].present()) {
    plan.calibration = PathIn(folder, value["calibration"].String());
  } else {
    plan.model = value["model"].String();
    plan.device = value["device"].String();
    plan.devices = static_cast<int>(value["devices"].IntOr(1, 1, 100'000));
    plan.attention_replicas = static_cast<int>(value["attention_replicas"].IntOr(1, 1, 100'000));
    plan.weights = value["precision"].StringOr("bf16");
    plan.cache = value["cache"].StringOr("bf16");
    plan.memory_share = value["memory_share"].FractionOr(0.9);
    const Value efficiency = value["efficiency"];
    if (efficiency.present()) {
      ServingEfficiency given;
      const auto seconds = [&](const char* key) {
        return ToSeconds(efficiency[key].DurationOr(Nanos{0}));
      };
      given.step = econ::kPlainRoofline;
      given.step.bandwidth = efficiency["bandwidth"].Number(0.001, 1);
      given.step.compute = efficiency["compute"].Number(0.001, 1);
      given.step.seconds_per_layer = seconds("per_layer");
      given.step.seconds_per_collective = seconds("per_collective");
      given.step_overheads = {seconds("per_sparse_layer"), seconds("per_sequence")};
      given.overheads.request_seconds = seconds("per_request");
      plan.efficiency = given;
    }
  }
  if (value["kv_tokens"].present()) {
    plan.kv_tokens = static_cast<std::uint64_t>(value["kv_tokens"].Int(16, 1'000'000'000));
  }
  const auto limit = [&](const char* key) {
    return static_cast<int>(value[key].IntOr(0, 0, kMostTokens));
  };
  plan.max_num_seqs = std::min(limit("max_num_seqs"), 65'536);
  plan.max_num_batched_tokens = std::min(limit("max_num_batched_tokens"), 1'000'000);
  plan.max_model_len = limit("max_model_len");
  plan.prefill_chunk = static_cast<int>(value["prefill_chunk"].IntOr(-1, -1, kMostTokens));
  plan.prefix_cache = value["prefix_cache"].BoolOr(true);
  if (value["weight"].present()) plan.weight = value["weight"].Number(1e-9, 1e9);
  plan.max_in_flight = limit("max_in_flight");
  plan.start_up = value["start_up"].DurationOr(Nanos{0});
  if (value["serves"].present()) {
    plan.interactive = plan.batch = false;
    for (const Value& tier : value["serves"].List()) {
      (tier.Choice<bool>({{"interactive", true}, {"batch", false}}) ? plan.interactive
                                                                    : plan.batch) = true;
    }
  }
  plan.autoscale = ReadAutoscale(value["autoscale"], plan.replicas);
  if (value["price"].present()) plan.usd_per_hour = value["price"].UsdPerHour();
  return plan;
}

Result<SimPlan> ParseSimPlan(std::string_view text, const std::string& source,
                             const std::filesystem::path& folder, const econ::Catalog& catalog) {
  TARE_TRY(config::Document document, config::Document::Parse(text, source));
  const Value root = document.root();
  SimPlan plan;
  root["schema"].Choice<int>({{"tare.sim/1", 1}});
  plan.name = root["name"].StringOr(source);
  ClusterSpec& cluster = plan.cluster;
  ReadTraffic(root["traffic"], folder, cluster.traffic);
  cluster.duration = root["duration"].DurationOr(Nanos{0});
  cluster.requests = static_cast<std::uint64_t>(root["requests"].IntOr(0, 0));
  cluster.warm_up = root["warm_up"].DurationOr(load::DefaultWarmUp(cluster.duration));
  cluster.drain = root["drain"].DurationOr(cluster.drain);
  const bool ends =
      cluster.traffic.arrival.kind == ArrivalSpec::Kind::kTrace && !cluster.traffic.repeat;
  if (cluster.duration <= Nanos{0} && cluster.requests == 0 && !ends) {
    root.AddError("a simulation needs an end: give 'duration' or 'requests'");
  }
  const Value levels = root["service_levels"];
  if (levels.present()) {
    plan.levels = {OptionalSeconds(levels["ttft"]), OptionalSeconds(levels["itl"]),
                   OptionalSeconds(levels["tpot"]), OptionalSeconds(levels["e2e"])};
  }
  cluster.router = root["router"].ChoiceOr<RouterPolicy>(
      RouterPolicy::kLeastLoaded, {{"round_robin", RouterPolicy::kRoundRobin},
                                   {"least_loaded", RouterPolicy::kLeastLoaded},
                                   {"prefix_affinity", RouterPolicy::kPrefixAffinity},
                                   {"tiers", RouterPolicy::kTiers}});
  std::vector<ReplicaPlan> groups;
  for (const auto& [name, value] : root["replicas"].Entries()) {
    groups.push_back(ReadReplicaPlan(value, folder));
    groups.back().name = name;
  }
  if (groups.empty()) root["replicas"].AddError("there are none: give at least one group");
  ReadIncidents(root["incidents"], groups, cluster.incidents);
  TARE_RETURN_IF_ERROR(document.Finish());

  // What depends on other files comes after the plan itself is known to be good.
  auto traffic = Traffic::Create(cluster.traffic);
  if (!traffic) return Context(std::move(traffic).error(), "{}: traffic", source);
  for (const ReplicaPlan& group : groups) {
    auto built = BuildGroup(group, catalog, traffic->LongestSequence());
    if (!built) return Context(std::move(built).error(), "{}: replicas.{}", source, group.name);
    cluster.groups.push_back(std::move(built->spec));
    plan.facts.push_back(std::move(built->facts));
  }
  return plan;
}

Result<SimPlan> LoadSimPlan(const std::filesystem::path& path, const econ::Catalog& catalog) {
  TARE_TRY(const std::string text, ReadFile(path));
  return ParseSimPlan(text, path.string(), path.parent_path(), catalog);
}

}  // namespace tare::sim
