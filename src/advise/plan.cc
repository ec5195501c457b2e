#include "advise/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/files.h"
#include "base/units.h"
#include "econ/published.h"
#include "sim/plan.h"

namespace tare::advise {
namespace {

using config::Value;

constexpr std::int64_t kMaxTokens = 1'000'000;
constexpr std::size_t kMaxLevels = 16;
constexpr std::size_t kMaxCandidates = 64;

void ReadLevels(const Value& load, LoadPlan& plan) {
  const Value users = load["users"];
  const Value rate = load["rate"];
  if (users.present() && rate.present()) {
    rate.AddError("give either users (each waits for its answer) or rate, not both");
    return;
  }
  const Value given = rate.present() ? rate : users;
  if (!given.present()) return;
  plan.open_loop = rate.present();
  plan.levels.clear();
  const std::vector<Value> items = given.is_list() ? given.List() : std::vector<Value>{given};
  for (const Value& item : items) {
    const double level =
        plan.open_loop ? item.RatePerSecond() : static_cast<double>(item.Int(1, 100'000));
    if (level <= 0 && plan.open_loop) item.AddError("a rate must be above 0");
    if (std::find(plan.levels.begin(), plan.levels.end(), level) != plan.levels.end()) {
      item.AddError("this level is given twice");
    }
    plan.levels.push_back(level);
  }
  if (plan.levels.empty() || plan.levels.size() > kMaxLevels) {
    given.AddError("expected 1 to {} levels, got {}", kMaxLevels, plan.levels.size());
  }
  std::sort(plan.levels.begin(), plan.levels.end());
}

LoadPlan ReadLoad(const Value& load) {
  LoadPlan plan;
  ReadLevels(load, plan);
  const Value requests = load["requests"];
  const Value duration = load["duration"];
  if (requests.present() && duration.present()) {
    duration.AddError("give either requests or duration, not both");
  }
  plan.duration = duration.DurationOr(Nanos(0));
  if (duration.present() && plan.duration <= Nanos(0)) duration.AddError("must be above 0");
  plan.requests =
      static_cast<std::uint64_t>(requests.IntOr(duration.present() ? 0 : 64, 1, 10'000'000));
  if (duration.present()) plan.requests = 0;
  plan.rounds = static_cast<int>(load["rounds"].IntOr(1, 1, 100));
  plan.input_tokens = static_cast<int>(load["input_tokens"].IntOr(128, 1, kMaxTokens));
  plan.output_tokens = static_cast<int>(load["output_tokens"].IntOr(32, 1, kMaxTokens));
  plan.length_cv = load["length_cv"].NumberOr(0, 0, 10);
  plan.shared_prefix = load["shared_prefix"].FractionOr(0);
  if (load["dataset"].present()) plan.dataset = load["dataset"].String();
  plan.seed = static_cast<std::uint64_t>(
      load["seed"].IntOr(1, 1, std::numeric_limits<std::int64_t>::max()));
  if (load["warm_up"].present()) plan.warm_up = load["warm_up"].Duration();
  return plan;
}

std::vector<LatencyLimit> ReadLatency(const Value& value) {
  std::vector<LatencyLimit> latency;
  for (const Metric metric : kMetrics) {
    const Value limits = value[ToString(metric)];
    if (!limits.present()) continue;
    for (const Percentile percentile : kPercentiles) {
      const Value limit = limits[ToString(percentile)];
      if (!limit.present()) continue;
      const double seconds = ToSeconds(limit.Duration());
      if (seconds <= 0) limit.AddError("a time must be above 0");
      latency.push_back({metric, percentile, seconds});
    }
  }
  return latency;
}

ServiceLevels ReadServiceLevels(const Value& value) {
  ServiceLevels levels;
  levels.latency = ReadLatency(value);
  levels.max_error_share = value["error_rate"].FractionOr(levels.max_error_share);
  if (value["quality"].present()) levels.min_quality = value["quality"].Number();
  return levels;
}

Quality ReadQuality(const Value& value) {
  Quality quality;
  quality.metric = value["metric"].String();
  quality.value = value["value"].Number();
  quality.higher_is_better = value["better"].Choice<bool>({{"higher", true}, {"lower", false}});
  quality.source = value["source"].String();
  return quality;
}

ClaimedFigures ReadClaimed(const Value& value, const LoadPlan& load) {
  ClaimedFigures claimed;
  claimed.model = value["model"].String();
  claimed.device = value["device"].String();
  claimed.devices = static_cast<int>(value["devices"].IntOr(1, 1, 100'000));
  claimed.precision = value["precision"].String();
  if (const Value users = value["users"]; users.present()) {
    claimed.users = users.Number(1, 1e9);
  } else if (!load.open_loop) {
    users.AddError("needed under load.users: it is the level of load the figures belong to");
  }
  if (const Value memory = value["memory"]; memory.present()) {
    const auto bytes = econ::ParsePublished(memory.String());
    if (bytes && bytes->number > 0 && bytes->dimension == econ::ParsePublished("1 GB")->dimension) {
      claimed.memory_bytes = bytes->base();
    } else {
      memory.AddError("expected a size such as 80 GB");
    }
  }
  claimed.output_tokens_per_s = value["output_tokens_per_s"].Number(1e-6, 1e12);
  const Value input = value["input_tokens"], output = value["output_tokens"];
  claimed.input_tokens = static_cast<int>(input.IntOr(load.input_tokens, 1, kMaxTokens));
  claimed.output_tokens = static_cast<int>(output.IntOr(load.output_tokens, 1, kMaxTokens));
  for (const Value& length : {input, output}) {
    if (load.dataset.empty() || length.present()) continue;
    length.AddError("needed under load.dataset, whose lengths a claim is not held against");
  }
  claimed.latency = ReadLatency(value);
  claimed.error = value["error"].FractionOr(claimed.error);
  if (claimed.error <= 0) value["error"].AddError("must be above 0 %: nobody's figures are exact");
  claimed.source = value["source"].String();
  return claimed;
}

Candidate ReadCandidate(const Value& value, const std::string& plan_model,
                        const std::filesystem::path& folder, const LoadPlan& load,
                        const PlanOverrides& overrides) {
  Candidate candidate;
  candidate.line = value.line();
  candidate.name = value["name"].String();
  if (candidate.name.size() > 80) value["name"].AddError("is longer than 80 bytes");
  const Value url = value["url"];
  const Value runs = value["runs"];
  const Value simulate = value["simulate"];
  const Value claimed = value["claimed"];
  if (runs.present() + simulate.present() + claimed.present() > 1) {
    value.AddError(
        "a candidate's figures come from one of stored runs (runs), a simulation (simulate) and "
        "a vendor (claimed)");
  }
  if (url.present()) {
    candidate.url = url.String();
    candidate.served_model = value["model"].StringOr("");
    candidate.api_key_env = value["api_key_env"].StringOr("");
  }
  if (runs.present()) {
    candidate.kind = Candidate::Kind::kStored;
    for (const Value& run : runs.List()) candidate.runs.push_back(run.String());
    if (candidate.runs.empty()) runs.AddError("expected at least one run id");
  } else if (simulate.present()) {
    candidate.kind = Candidate::Kind::kSimulated;
    candidate.replica = sim::ReadReplicaPlan(simulate, folder);
    candidate.replica.name = candidate.name;
    candidate.machines = candidate.replica.replicas;
  } else if (claimed.present()) {
    candidate.kind = Candidate::Kind::kClaimed;
    candidate.claimed = ReadClaimed(claimed, load);
  } else if (url.present()) {
    candidate.kind = Candidate::Kind::kRemote;
  } else {
    candidate.kind = Candidate::Kind::kLocal;
    candidate.model = value["model"].StringOr(plan_model);
    if (candidate.model.empty() && overrides.model) candidate.model = *overrides.model;
    if (candidate.model.empty()) {
      value["model"].AddError(
          "no model to serve: name a file here or in the plan, or give --model FILE "
          "(a url or runs would make this another kind of candidate)");
    }
    candidate.dtype = value["dtype"].ChoiceOr<std::string>(
        "auto",
        {{"auto", "auto"}, {"f32", "f32"}, {"bf16", "bf16"}, {"int8", "int8"}, {"int4", "int4"}});
    candidate.threads = static_cast<int>(value["threads"].IntOr(0, 1, 4096));
    for (const Value& flag : value["flags"].ListOrEmpty()) candidate.flags.push_back(flag.String());
  }
  if (value["price"].present()) candidate.usd_per_hour = value["price"].UsdPerHour();
  candidate.machine = value["machine"].StringOr("");
  if (candidate.kind != Candidate::Kind::kSimulated) {
    candidate.machines = static_cast<int>(value["machines"].IntOr(1, 1, 10'000));
  }
  if (value["claims"].present()) candidate.claims = folder / value["claims"].String();
  if (value["quality"].present()) candidate.quality = ReadQuality(value["quality"]);
  return candidate;
}

void CheckTogether(const Value& root, const Plan& plan) {
  std::set<std::string> names;
  for (const Candidate& candidate : plan.candidates) {
    if (!names.insert(candidate.name).second) {
      root["candidates"].AddError("two candidates are named '{}'", candidate.name);
    }
  }
  const Quality* first = nullptr;
  for (const Candidate& candidate : plan.candidates) {
    if (!candidate.quality) {
      if (plan.levels.min_quality) {
        root["candidates"].AddError(
            "service_levels.quality needs a quality for every candidate; '{}' has none",
            candidate.name);
      }
      continue;
    }
    if (first == nullptr) first = &*candidate.quality;
    if (candidate.quality->metric != first->metric ||
        candidate.quality->higher_is_better != first->higher_is_better) {
      root["candidates"].AddError("the quality of '{}' is in another metric than the others'",
                                  candidate.name);
    }
  }
}

}  // namespace

const char* ToString(Metric metric) {
  switch (metric) {
    case Metric::kTtft:
      return "ttft";
    case Metric::kItl:
      return "itl";
    case Metric::kTpot:
      return "tpot";
    case Metric::kE2e:
      return "e2e";
  }
  return "";
}

const char* ToString(Percentile percentile) {
  switch (percentile) {
    case Percentile::kP50:
      return "p50";
    case Percentile::kP90:
      return "p90";
    case Percentile::kP95:
      return "p95";
    case Percentile::kP99:
      return "p99";
  }
  return "";
}

double ShareOf(Percentile percentile) {
  switch (percentile) {
    case Percentile::kP50:
      return 0.50;
    case Percentile::kP90:
      return 0.90;
    case Percentile::kP95:
      return 0.95;
    case Percentile::kP99:
      return 0.99;
  }
  return 0;
}

std::uint64_t SamplesNeeded(Percentile percentile) {
  switch (percentile) {
    case Percentile::kP50:
      return 11;
    case Percentile::kP90:
      return 64;
    case Percentile::kP95:
      return 130;
    case Percentile::kP99:
      return 662;
  }
  return 0;
}

std::string DescribeLevel(const LoadPlan& load, double level) {
  if (load.open_loop) return fmt::format("{:g} request{}/s", level, level == 1 ? "" : "s");
  return level == 1 ? "1 user" : fmt::format("{:g} users", level);
}

Result<Plan> ParsePlan(std::string_view text, std::string source, const PlanOverrides& overrides) {
  TARE_TRY(const config::Document document, config::Document::Parse(text, source));
  const Value root = document.root();
  Plan plan;
  plan.source = std::move(source);
  plan.text = text;
  (void)root["schema"].ChoiceOr<int>(1, {{"tare.plan/1", 1}});
  plan.name = root["name"].String();
  plan.load = ReadLoad(root["load"]);
  plan.levels = ReadServiceLevels(root["service_levels"]);
  const Value traffic = root["traffic"];
  if (traffic.present()) {
    plan.traffic = TrafficPlan{traffic["tokens_per_day"].Number(1, 1e18),
                               traffic["peak_to_mean"].NumberOr(1, 1, 1000)};
  }
  if (root["price"].present()) plan.usd_per_hour = root["price"].UsdPerHour();
  if (overrides.usd_per_hour) plan.usd_per_hour = overrides.usd_per_hour;
  plan.price_file = root["prices"].StringOr("");
  plan.utilisation = root["utilisation"].FractionOr(1);
  if (plan.utilisation <= 0) root["utilisation"].AddError("must be above 0");
  plan.confidence = root["confidence"].FractionOr(plan.confidence);
  if (plan.confidence < 0.5 || plan.confidence >= 1) {
    root["confidence"].AddError("expected at least 50% and below 100%");
  }
  plan.min_difference = root["min_difference"].FractionOr(plan.min_difference);

  plan.mix = root["routing"].ChoiceOr<bool>(false, {{"best", false}, {"mix", true}});

  const std::string plan_model = root["model"].StringOr("");
  const std::string default_model = overrides.model ? overrides.model->string() : plan_model;
  const std::filesystem::path folder = std::filesystem::path(plan.source).parent_path();
  for (const Value& item : root["candidates"].List()) {
    plan.candidates.push_back(ReadCandidate(item, default_model, folder, plan.load, overrides));
  }
  if (root["candidates"].is_list() &&
      (plan.candidates.empty() || plan.candidates.size() > kMaxCandidates)) {
    root["candidates"].AddError("expected 1 to {} candidates, got {}", kMaxCandidates,
                                plan.candidates.size());
  }
  for (const Candidate& candidate : plan.candidates) {
    if (plan.load.length_cv > 0 && candidate.kind != Candidate::Kind::kSimulated &&
        candidate.kind != Candidate::Kind::kStored && candidate.kind != Candidate::Kind::kClaimed) {
      root["load"]["length_cv"].AddError(
          "lengths that vary can only be simulated, and '{}' is measured: leave it out, or give "
          "a dataset",
          candidate.name);
    }
  }
  CheckTogether(root, plan);
  TARE_RETURN_IF_ERROR(document.Finish());
  return plan;
}

Result<Plan> LoadPlanFile(const std::filesystem::path& path, const PlanOverrides& overrides) {
  TARE_TRY(const std::string text, ReadFile(path, config::kMaxBytes));
  return ParsePlan(text, path.string(), overrides);
}

}  // namespace tare::advise
