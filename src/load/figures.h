// From recordings to figures: the latencies of docs/LOAD.md, rates, goodput, and the series kept
// with a run. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "load/recorder.h"
#include "load/runner.h"
#include "store/run_record.h"

namespace tare::load {

struct Window {
  Nanos start{0};  // of the run
  Nanos begin{0};  // of the measured part
  Nanos end{0};
  double seconds() const { return ToSeconds(end - begin); }
};

// Latencies of one request, seconds; NaN where the request has none.
struct RequestLatencies {
  double ttft = 0, ttft_intended = 0, e2e = 0, e2e_intended = 0, tpot = 0, itl_mean = 0;
};
RequestLatencies LatenciesOf(const RequestRecord& record);

// All levels met at once. Times count from the intended moment: the user's wait in the client too.
bool IsGood(const RequestRecord& record, const ServiceLevels& levels);

// Mean, spread, percentiles by linear interpolation, and 95 % intervals of the percentiles by order
// statistics with as many samples as the series is worth under its autocorrelation. `values` in the
// order of time; NaNs are left out.
store::LatencyFigure FigureOf(std::vector<double> values);

// How many independent samples a series is worth (Geyer's initial positive sequence).
double EffectiveSamples(std::span<const double> values);

// Quantile q of sorted values by linear interpolation (Hyndman and Fan's type 7).
double SortedQuantile(std::span<const double> sorted, double q);

// `closed`: users wait for their answers.
store::RunSummary Summarize(const Recorder& recorder, const Window& window,
                            const ServiceLevels& levels);

// Columns per second and per request, the gap histogram; for charts, comparisons and CSV.
nlohmann::json MakeSeries(const Recorder& recorder, const Window& window,
                          const ServiceLevels& levels);

// requests.csv and seconds.csv in `dir` (created when missing). Columns: docs/LOAD.md.
Status WriteCsv(const Recorder& recorder, const Window& window, const ServiceLevels& levels,
                const std::filesystem::path& dir);

}  // namespace tare::load
