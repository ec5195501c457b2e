// Reading the series of a run record (docs/LOAD.md, "Series"). Records without series, and series
// of another shape, give empty samples: the summary then speaks alone.
#include <cmath>

#include "advise/measurement.h"

namespace tare::advise {
namespace {

using nlohmann::json;

const json& At(const json& parent, const char* key) {
  static const json kNothing;
  const auto it = parent.find(key);
  return it == parent.end() ? kNothing : *it;
}

bool IsSet(const json& column, std::size_t index) {
  if (!column.is_array() || index >= column.size()) return false;
  const json& value = column[index];
  return value.is_number() ? value.get<double>() != 0 : value.is_boolean() && value.get<bool>();
}

// The column's values at the answered requests of the measured window.
std::vector<double> Answered(const json& requests, const std::string& key) {
  std::vector<double> values;
  const json& column = At(requests, key.c_str());
  const json& ok = At(requests, "ok");
  const json& measured = At(requests, "measured");
  if (!column.is_array()) return values;
  for (std::size_t i = 0; i < column.size(); ++i) {
    if (column[i].is_number() && IsSet(ok, i) && IsSet(measured, i)) {
      values.push_back(column[i].get<double>());
    }
  }
  return values;
}

// Tokens in each whole second of the measured window.
std::vector<double> TokensBySecond(const json& series) {
  std::vector<double> tokens;
  const json& window = At(series, "window_s");
  const json& seconds = At(series, "per_second");
  const json& column = seconds.is_object() ? At(seconds, "tokens") : seconds;
  if (!window.is_array() || window.size() != 2 || !window[0].is_number() ||
      !window[1].is_number() || !column.is_array()) {
    return tokens;
  }
  const double begin = std::ceil(std::max(0.0, window[0].get<double>()) - 1e-6);
  const double end = std::floor(window[1].get<double>() + 1e-6);
  for (std::size_t i = 0; i < column.size(); ++i) {
    const auto second = static_cast<double>(i);
    if (second >= begin && second + 1 <= end && column[i].is_number()) {
      tokens.push_back(column[i].get<double>());
    }
  }
  return tokens;
}

}  // namespace

RunSamples SamplesOf(const store::RunRecord& record, bool from_intended) {
  RunSamples samples;
  const json& series = record.series;
  if (!series.is_object()) return samples;
  samples.output_tokens = TokensBySecond(series);
  const json& requests = At(series, "requests");
  // Thinned series would understate the number of answers.
  const json& stride = At(series, "request_stride");
  if (!requests.is_object() || (stride.is_number() && stride.get<double>() > 1)) return samples;
  for (const Metric metric : {Metric::kTtft, Metric::kTpot, Metric::kE2e}) {
    const bool intended = from_intended && metric != Metric::kTpot;
    samples.latency_s[static_cast<std::size_t>(metric)] =
        Answered(requests, fmt::format("{}{}_s", ToString(metric), intended ? "_intended" : ""));
  }
  return samples;
}

}  // namespace tare::advise
