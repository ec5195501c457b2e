#include "advise/measurement.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "sim/simulate.h"

namespace tare::advise {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
// A round is cut into this many blocks to see how its rate moves: enough to estimate a variance,
// long enough that neighbouring blocks hardly share answers.
constexpr std::size_t kBlocks = 8;
// The first and last seconds of a window hold the ramp of a closed loop; a block has at least this
// many seconds.
constexpr std::size_t kMinBlockSeconds = 1;
// The standard deviation of a normal error whose mean absolute value is 1.
constexpr double kDeviationOfMeanError = 1.2533141373155;  // sqrt(pi / 2)
// A known error rests on some dozens of measured points.
constexpr double kErrorDegreesOfFreedom = 30;

const store::LatencyFigure& FigureOf(const store::RunSummary& summary, Metric metric,
                                     bool from_intended) {
  const store::LatencyPair& pair = summary.*PlaceOf(metric);
  return from_intended ? pair.intended : pair.sent;
}

double PercentileIn(const store::LatencyFigure& figure, Percentile percentile) {
  return figure.n < SamplesNeeded(percentile) ? kNone : figure.*PlaceOf(percentile);
}

std::vector<double> Blocks(const std::vector<double>& tokens_by_second) {
  const std::size_t seconds = tokens_by_second.size();
  const std::size_t blocks = std::min(kBlocks, seconds / kMinBlockSeconds);
  std::vector<double> rates;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t begin = b * seconds / blocks;
    const std::size_t end = (b + 1) * seconds / blocks;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += tokens_by_second[i];
    rates.push_back(sum / static_cast<double>(end - begin));
  }
  return rates;
}

void ReadPredictionError(const store::RunRecord& record, LevelResult& result) {
  const auto it = record.target.find(sim::kPredictionErrorKey);
  if (record.tag == "measured" || it == record.target.end() || !it->is_object()) return;
  const auto number = [&](const char* key) {
    const auto value = it->find(key);
    return value != it->end() && value->is_number() ? value->get<double>() : 0.0;
  };
  result.prediction_error = std::max(result.prediction_error, number("rate"));
  result.first_token_error = std::max(result.first_token_error, number("first_token"));
  if (const auto source = it->find("source"); source != it->end() && source->is_string()) {
    result.error_source = source->get<std::string>();
  }
}

// The probability that a limit holds when the simulated figure is off by a log-normal factor.
double ProbabilityUnderError(double simulated, double limit, double mean_error) {
  const double deviation = kDeviationOfMeanError * mean_error;
  if (!(simulated > 0) || deviation <= 0) return simulated <= limit ? 1 : 0;
  return 0.5 * std::erfc(-std::log(limit / simulated) / deviation / std::sqrt(2.0));
}

LimitCheck Check(const LatencyLimit& limit, const LevelResult& result) {
  LimitCheck check;
  check.limit = limit;
  const auto metric = static_cast<std::size_t>(limit.metric);
  check.measured_s = result.percentile_s[metric][static_cast<std::size_t>(limit.percentile)];
  check.samples = result.samples[metric];
  if (std::isnan(check.measured_s)) {
    check.state = LimitCheck::State::kUnproven;
    return check;
  }
  const bool met = check.measured_s <= limit.limit_s;
  check.state = met ? LimitCheck::State::kMet : LimitCheck::State::kMissed;
  check.probability = met ? 1 : 0;
  const std::vector<double>& sorted = result.sorted_s[metric];
  if (!sorted.empty()) {
    const auto within = static_cast<std::uint64_t>(
        std::upper_bound(sorted.begin(), sorted.end(), limit.limit_s) - sorted.begin());
    check.probability = ProbabilityShareAtLeast(within, sorted.size(), ShareOf(limit.percentile));
  }
  if (result.prediction_error > 0) {
    const double error =
        limit.metric == Metric::kTtft ? result.first_token_error : result.prediction_error;
    check.probability =
        std::min(check.probability, ProbabilityUnderError(check.measured_s, limit.limit_s, error));
  }
  return check;
}

// Pools the rounds' latencies of one metric; false when a record keeps none.
bool Pool(const std::vector<RunSamples>& samples, std::size_t metric, std::vector<double>& pooled) {
  for (const RunSamples& round : samples) {
    if (round.latency_s[metric].empty()) {
      pooled.clear();
      return false;
    }
    pooled.insert(pooled.end(), round.latency_s[metric].begin(), round.latency_s[metric].end());
  }
  std::sort(pooled.begin(), pooled.end());
  return true;
}

void FillLatencies(const std::vector<store::RunRecord>& records,
                   const std::vector<RunSamples>& samples, bool from_intended,
                   LevelResult& result) {
  for (const Metric metric : kMetrics) {
    const auto m = static_cast<std::size_t>(metric);
    std::vector<double>& sorted = result.sorted_s[m];
    result.max_s[m] = kNone;
    result.percentile_s[m].fill(kNone);
    if (Pool(samples, m, sorted)) {
      result.samples[m] = sorted.size();
      result.max_s[m] = sorted.back();
      for (const Percentile percentile : kPercentiles) {
        if (sorted.size() < SamplesNeeded(percentile)) continue;
        result.percentile_s[m][static_cast<std::size_t>(percentile)] =
            PercentileOf(sorted, ShareOf(percentile));
      }
      continue;
    }
    for (const store::RunRecord& record : records) {
      const store::LatencyFigure& figure = FigureOf(record.summary, metric, from_intended);
      result.samples[m] += figure.n;
      if (figure.n > 0) result.max_s[m] = std::fmax(result.max_s[m], figure.max);
      for (const Percentile percentile : kPercentiles) {
        double& worst = result.percentile_s[m][static_cast<std::size_t>(percentile)];
        worst = std::fmax(worst, PercentileIn(figure, percentile));  // fmax passes over NaN
      }
    }
  }
}

}  // namespace

store::LatencyPair store::RunSummary::*PlaceOf(Metric metric) {
  switch (metric) {
    case Metric::kTtft:
      return &store::RunSummary::ttft;
    case Metric::kItl:
      return &store::RunSummary::itl;
    case Metric::kTpot:
      return &store::RunSummary::tpot;
    case Metric::kE2e:
      break;
  }
  return &store::RunSummary::e2e;
}

double store::LatencyFigure::*PlaceOf(Percentile percentile) {
  switch (percentile) {
    case Percentile::kP50:
      return &store::LatencyFigure::p50;
    case Percentile::kP90:
      return &store::LatencyFigure::p90;
    case Percentile::kP95:
      return &store::LatencyFigure::p95;
    case Percentile::kP99:
      break;
  }
  return &store::LatencyFigure::p99;
}

bool LevelResult::KeepsLevels() const {
  return errors_kept && invalid.empty() && ok > 0 &&
         std::all_of(checks.begin(), checks.end(), [](const LimitCheck& check) {
           return check.state == LimitCheck::State::kMet;
         });
}

double LevelResult::SloProbability() const {
  double probability = 1;
  for (const LimitCheck& check : checks) probability = std::min(probability, check.probability);
  return probability;
}

LevelResult Combine(double level, const std::vector<store::RunRecord>& records, const Plan& plan) {
  TARE_CHECK(!records.empty());
  LevelResult result;
  result.level = level;
  result.tag = "measured";
  result.samples.fill(0);
  std::vector<RunSamples> samples;
  std::vector<std::vector<double>> blocks;
  double input_tokens = 0;
  double output_tokens = 0;
  for (const store::RunRecord& record : records) {
    const store::RunSummary& summary = record.summary;
    if (record.tag != "measured") result.tag = record.tag;
    result.total += summary.total;
    result.ok += summary.ok;
    result.failed += summary.failed;
    input_tokens += static_cast<double>(summary.input_tokens);
    output_tokens += static_cast<double>(summary.output_tokens);
    result.measured_for_s += summary.duration_s;
    result.rates.requests_per_s += summary.requests_per_s;
    result.rates.output_tokens_per_s += summary.output_tokens_per_s;
    result.peak_memory_bytes =
        std::max(result.peak_memory_bytes,
                 summary.peak_pss_bytes > 0 ? summary.peak_pss_bytes : summary.peak_rss_bytes);
    for (const store::ValidityCheck& check : record.checks) {
      if (!check.ok && !record.valid) {
        result.invalid.push_back(fmt::format("{}: {}", check.name, check.detail));
      }
    }
    if (!record.valid && record.checks.empty()) result.invalid.push_back("marked invalid");
    if (const auto it = record.target.find(kOthersShareKey);
        it != record.target.end() && it->is_number()) {
      result.others_share = std::max(result.others_share.value_or(0), it->get<double>());
    }
    ReadPredictionError(record, result);
    if (!record.id.empty()) result.runs.push_back(record.id);
    samples.push_back(SamplesOf(record, plan.load.open_loop));
    blocks.push_back(Blocks(samples.back().output_tokens));
    if (blocks.back().empty()) blocks.back() = {summary.output_tokens_per_s};
    result.tokens_by_second.push_back(samples.back().output_tokens);
  }
  const auto rounds = static_cast<double>(records.size());
  result.rates.requests_per_s /= rounds;
  result.rates.output_tokens_per_s /= rounds;
  if (result.ok > 0) {
    result.input_tokens_per_request = input_tokens / static_cast<double>(result.ok);
    result.output_tokens_per_request = output_tokens / static_cast<double>(result.ok);
  }
  // Prompt tokens have no arrival times of their own: they come with their requests.
  result.rates.input_tokens_per_s = result.rates.requests_per_s * result.input_tokens_per_request;
  result.rate_error = EstimateRate(blocks);
  if (result.prediction_error > 0) {
    // More seeds do not make a model truer: its error stays, whatever the rounds say.
    RateEstimate& error = result.rate_error;
    const bool seen = error.rounds > 0 && result.tag == "simulated";
    const double own = seen ? std::min(error.relative_error, 1.0) : 0;
    error.relative_error = std::hypot(own, kDeviationOfMeanError * result.prediction_error);
    error.degrees_of_freedom = kErrorDegreesOfFreedom;
  }
  if (result.total > 0) {
    result.error_share = static_cast<double>(result.failed) / static_cast<double>(result.total);
  }
  result.errors_kept = result.error_share <= plan.levels.max_error_share;
  FillLatencies(records, samples, plan.load.open_loop, result);
  for (const LatencyLimit& limit : plan.levels.latency) {
    result.checks.push_back(Check(limit, result));
  }
  return result;
}

}  // namespace tare::advise
