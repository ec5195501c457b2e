#include "load/levels.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "base/units.h"
#include "load/figures.h"

namespace tare::load {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 4> kMetrics = {"ttft", "itl", "tpot", "e2e"};

std::optional<double>* PlainLevel(ServiceLevels& levels, std::string_view metric) {
  if (metric == "ttft") return &levels.ttft;
  if (metric == "itl") return &levels.itl;
  if (metric == "tpot") return &levels.tpot;
  if (metric == "e2e") return &levels.e2e;
  return nullptr;
}

// The series' column that a level on a metric looks at.
const char* ColumnOf(const std::string& metric) {
  if (metric == "ttft") return "ttft_intended_s";
  if (metric == "itl") return "itl_mean_s";
  if (metric == "tpot") return "tpot_s";
  return "e2e_intended_s";
}

std::string NameOf(const PercentileLevel& level) {
  return fmt::format("{}_p{:g}", level.metric, level.quantile * 100);
}

// Wilson's score bound of met/n; `sign` -1: lower, +1: upper.
double WilsonBound(double met, double n, double sign) {
  if (n <= 0) return sign < 0 ? 0 : 1;
  const double share = met / n;
  const double z2 = kLevelZ * kLevelZ;
  const double middle = share + z2 / (2 * n);
  const double half =
      kLevelZ * std::sqrt(std::max(0.0, share * (1 - share) / n + z2 / (4 * n * n)));
  return std::clamp((middle + sign * half) / (1 + z2 / n), 0.0, 1.0);
}

LevelShare MakeShare(std::string name, double needed, const std::vector<double>& met) {
  LevelShare share;
  share.name = std::move(name);
  share.needed = needed;
  if (met.empty()) return share;
  double sum = 0;
  for (const double m : met) sum += m;
  share.samples = EffectiveSamples(met);
  share.met = sum / static_cast<double>(met.size()) * share.samples;
  return share;
}

}  // namespace

const char* ToString(LevelVerdict verdict) {
  switch (verdict) {
    case LevelVerdict::kHolds:
      return "holds";
    case LevelVerdict::kBreaks:
      return "breaks";
    case LevelVerdict::kUnclear:
      return "unclear";
  }
  return "unclear";
}

double LevelShare::low() const { return WilsonBound(met, samples, -1); }
double LevelShare::high() const { return WilsonBound(met, samples, +1); }

LevelVerdict LevelShare::verdict() const {
  if (samples <= 0) return LevelVerdict::kUnclear;
  if (low() >= needed) return LevelVerdict::kHolds;
  return high() < needed ? LevelVerdict::kBreaks : LevelVerdict::kUnclear;
}

void LevelShare::Pool(const LevelShare& other) {
  met += other.met;
  samples += other.samples;
}

double LeastSamplesFor(double needed) {
  const double q = std::clamp(needed, 0.0, 0.9999);
  return kLevelZ * kLevelZ * q / (1 - q);  // Wilson's lower bound of n of n: n / (n + z²)
}

Status ParseLevels(std::string_view text, ServiceLevels& levels) {
  if (text.empty()) return {};
  for (const std::string_view item : Split(text, ',')) {
    const std::size_t equals = item.find('=');
    const std::string_view key = Trim(item.substr(0, equals));
    const std::size_t bar = key.find("_p");
    const std::string_view metric = key.substr(0, bar);
    std::optional<double>* level = PlainLevel(levels, metric);
    if (level == nullptr || equals == std::string_view::npos) {
      return FailParam("slo",
                       "--slo '{}' is not understood; write ttft=500ms,itl=50ms (also tpot, e2e) "
                       "for every request, ttft_p99=500ms for a percentile",
                       text);
    }
    TARE_TRY(const Nanos limit, ParseDuration(Trim(item.substr(equals + 1))));
    if (limit <= Nanos(0)) return FailParam("slo", "--slo '{}': a limit must be above 0", item);
    if (bar == std::string_view::npos) {
      *level = ToSeconds(limit);
      continue;
    }
    const Result<double> percent = ParseNumber(key.substr(bar + 2));
    if (!percent || !(*percent >= 1 && *percent <= 99.9)) {
      return FailParam("slo", "--slo '{}': '{}' is no percentile between p1 and p99.9", text, key);
    }
    levels.percentiles.push_back({std::string(metric), *percent / 100, ToSeconds(limit)});
  }
  return {};
}

json Describe(const ServiceLevels& levels) {
  json text = json::object();
  if (levels.ttft) text["ttft_s"] = *levels.ttft;
  if (levels.itl) text["itl_s"] = *levels.itl;
  if (levels.tpot) text["tpot_s"] = *levels.tpot;
  if (levels.e2e) text["e2e_s"] = *levels.e2e;
  for (const PercentileLevel& level : levels.percentiles) {
    text[NameOf(level) + "_s"] = level.seconds;
  }
  return text;
}

std::vector<LevelShare> SharesOf(const store::RunRecord& record, const ServiceLevels& levels) {
  std::vector<LevelShare> shares;
  if (!record.series.is_object() || !record.series.contains("requests")) return shares;
  const json& requests = record.series["requests"];
  const auto column = [&](const char* name) {
    std::vector<double> values;
    const auto it = requests.find(name);
    if (it == requests.end() || !it->is_array()) return values;
    for (const json& v : *it) values.push_back(v.is_number() ? v.get<double>() : std::nan(""));
    return values;
  };
  const std::vector<double> measured = column("measured"), ok = column("ok");
  // `met(i)`: request i, which was answered, meets the level.
  const auto add = [&](std::string name, double needed, const auto& met) {
    std::vector<double> series;
    for (std::size_t i = 0; i < measured.size() && i < ok.size(); ++i) {
      if (measured[i] == 1) series.push_back(ok[i] == 1 && met(i) ? 1 : 0);
    }
    shares.push_back(MakeShare(std::move(name), needed, series));
  };
  if (levels.per_request()) {
    const std::vector<double> good = column("good");
    add("good", levels.good_share, [&](std::size_t i) { return i < good.size() && good[i] == 1; });
  }
  for (const PercentileLevel& level : levels.percentiles) {
    const std::vector<double> latency = column(ColumnOf(level.metric));
    // A latency the request does not have (one token has no TPOT) cannot be missed.
    add(NameOf(level), level.quantile,
        [&](std::size_t i) { return i >= latency.size() || !(latency[i] > level.seconds); });
  }
  return shares;
}

LevelVerdict Together(const std::vector<LevelShare>& shares) {
  LevelVerdict all = LevelVerdict::kHolds;
  for (const LevelShare& share : shares) {
    const LevelVerdict one = share.verdict();
    if (one == LevelVerdict::kBreaks) return one;
    if (one == LevelVerdict::kUnclear) all = one;
  }
  return shares.empty() ? LevelVerdict::kUnclear : all;
}

json ToJson(const LevelShare& share) {
  return {{"level", share.name},
          {"needed", share.needed},
          {"share", share.share()},
          {"interval95", {share.low(), share.high()}},
          {"effective_samples", share.samples},
          {"verdict", ToString(share.verdict())}};
}

}  // namespace tare::load
