#include "load/compare.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/histogram.h"
#include "load/figures.h"
#include "load/random.h"

namespace tare::load {
namespace {

using nlohmann::json;

constexpr int kResamples = 1000;
// Fewer blocks than this say nothing about their spread.
constexpr std::size_t kFewestBlocks = 5;

using Statistic = std::function<double(std::vector<double>&)>;

double Mean(std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

Statistic Quantile(double q) {
  return [q](std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return SortedQuantile(values, q);
  };
}

// Blocks as long as the series remembers, and at least the cube root of its length.
std::size_t BlockLength(const std::vector<double>& series) {
  const auto n = static_cast<double>(series.size());
  const double memory = n / EffectiveSamples(series);
  const double length = std::max(std::cbrt(n), 2 * memory);
  return std::max<std::size_t>(1, static_cast<std::size_t>(length));
}

std::vector<double> Resample(const std::vector<double>& series, std::size_t block, Random& random) {
  std::vector<double> drawn;
  drawn.reserve(series.size() + block);
  while (drawn.size() < series.size()) {
    const std::size_t from = random.Below(series.size() - block + 1);
    drawn.insert(drawn.end(), series.begin() + static_cast<std::ptrdiff_t>(from),
                 series.begin() + static_cast<std::ptrdiff_t>(from + block));
  }
  drawn.resize(series.size());
  return drawn;
}

Difference CompareSeries(std::string metric, const std::vector<double>& a,
                         const std::vector<double>& b, const Statistic& statistic,
                         std::size_t needed, bool higher_is_better, std::uint64_t seed) {
  Difference difference;
  difference.metric = std::move(metric);
  difference.higher_is_better = higher_is_better;
  const std::size_t block_a = a.empty() ? 1 : BlockLength(a);
  const std::size_t block_b = b.empty() ? 1 : BlockLength(b);
  if (a.size() < needed || b.size() < needed || a.size() < kFewestBlocks * block_a ||
      b.size() < kFewestBlocks * block_b) {
    difference.verdict = "too few samples";
    return difference;
  }
  std::vector<double> copy = a;
  difference.a = statistic(copy);
  copy = b;
  difference.b = statistic(copy);
  if (!(difference.a > 0) || !(difference.b > 0)) {
    difference.verdict = "too few samples";
    return difference;
  }
  difference.ratio = difference.b / difference.a;
  Random random(StreamSeed(seed, std::hash<std::string>{}(difference.metric)));
  std::vector<double> ratios;
  for (int i = 0; i < kResamples; ++i) {
    std::vector<double> drawn_a = Resample(a, block_a, random);
    std::vector<double> drawn_b = Resample(b, block_b, random);
    const double denominator = statistic(drawn_a);
    if (denominator > 0) ratios.push_back(statistic(drawn_b) / denominator);
  }
  std::sort(ratios.begin(), ratios.end());
  difference.low = SortedQuantile(ratios, 0.025);
  difference.high = SortedQuantile(ratios, 0.975);
  const bool b_is_higher = difference.low > 1;
  const bool b_is_lower = difference.high < 1;
  difference.verdict = !b_is_higher && !b_is_lower       ? "cannot tell"
                       : b_is_higher == higher_is_better ? "better"
                                                         : "worse";
  return difference;
}

// A column of the measured, answered requests, in the order of time.
std::vector<double> Column(const store::RunRecord& record, const char* name) {
  std::vector<double> values;
  if (!record.series.is_object() || !record.series.contains("requests")) return values;
  const json& requests = record.series["requests"];
  if (!requests.is_object()) return values;
  for (const char* key : {name, "ok", "measured"}) {
    if (!requests.contains(key) || !requests[key].is_array()) return values;
  }
  const json& column = requests[name];
  const json& ok = requests["ok"];
  const json& measured = requests["measured"];
  const std::size_t n = std::min({column.size(), ok.size(), measured.size()});
  for (std::size_t i = 0; i < n; ++i) {
    if (ok[i] == 1 && measured[i] == 1 && column[i].is_number()) {
      values.push_back(column[i].get<double>());
    }
  }
  return values;
}

// Per-second sums inside the measured window.
std::vector<double> PerSecond(const store::RunRecord& record, const char* name) {
  std::vector<double> values;
  const json& series = record.series;
  if (!series.is_object() || !series.contains("per_second") || !series.contains("window_s")) {
    return values;
  }
  const json& window = series["window_s"];
  if (!series["per_second"].is_object() || !series["per_second"].contains(name) ||
      !window.is_array() || window.size() != 2 || !window[0].is_number() ||
      !window[1].is_number()) {
    return values;
  }
  const json& column = series["per_second"][name];
  const double from = std::ceil(window[0].get<double>());
  const double to = std::floor(window[1].get<double>());
  for (std::size_t i = 0; i < column.size(); ++i) {
    const auto second = static_cast<double>(i);
    if (second >= from && second + 1 <= to && column[i].is_number()) {
      values.push_back(column[i].get<double>());
    }
  }
  return values;
}

}  // namespace

std::vector<Difference> Compare(const store::RunRecord& a, const store::RunRecord& b,
                                std::uint64_t seed) {
  std::vector<Difference> differences;
  for (const char* metric : {"ttft", "tpot", "e2e"}) {
    const std::string column = std::string(metric) + "_s";
    const std::vector<double> in_a = Column(a, column.c_str());
    const std::vector<double> in_b = Column(b, column.c_str());
    if (in_a.empty() && in_b.empty()) continue;
    differences.push_back(CompareSeries(fmt::format("{}_mean_s", metric), in_a, in_b, Mean,
                                        kMinSamplesP50, false, seed));
    for (const auto& [name, q] : {std::pair{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}}) {
      differences.push_back(CompareSeries(fmt::format("{}_{}_s", metric, name), in_a, in_b,
                                          Quantile(q), MinSamplesFor(q), false, seed));
    }
  }
  for (const auto& [metric, column] :
       {std::pair{"requests_per_s", "ok"}, {"output_tokens_per_s", "tokens"}}) {
    differences.push_back(CompareSeries(metric, PerSecond(a, column), PerSecond(b, column), Mean,
                                        kMinSamplesP50, true, seed));
  }
  return differences;
}

}  // namespace tare::load
