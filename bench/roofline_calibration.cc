// Fits the roofline's efficiency factors to the measured servers and prints the error, fitted and
// held out, beside the plain roofline with fixed 0.8 bandwidth and 0.5 compute efficiency.
//
// usage: roofline_calibration [PERF_FOLDER]
#include <cstdio>

#include "econ/measured_points.h"

namespace {

using namespace tare::econ;

void Print(const char* name, const PredictionError& error) {
  std::printf(
      "%-22s output token: mean %5.1f %%, median %5.1f %% (%d)   first token: mean %5.1f %%, "
      "median %5.1f %% (%d)\n",
      name, error.output_token_mean * 100, error.output_token_median * 100, error.output_tokens,
      error.first_token_mean * 100, error.first_token_median * 100, error.first_tokens);
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path folder =
      argc > 1 ? std::filesystem::path(argv[1]) : MeasuredDataDir(TARE_SOURCE_DIR);
  tare::Result<Catalog> catalog = Catalog::BuiltIn();
  if (!catalog) {
    std::fprintf(stderr, "%s\n", catalog.error().message.c_str());
    return 3;
  }
  const std::vector<MeasuredPoint> points = MeasuredPoints(folder, *catalog);
  if (points.empty()) {
    std::fprintf(stderr, "no measured points under %s\n", folder.c_str());
    return 3;
  }
  const Efficiency fitted = FitEfficiency(points);
  std::printf("%zu points\n", points.size());
  std::printf(
      "fitted: bandwidth %.3f, compute %.3f, %.1f us a layer, %.1f us a collective, %.2f ms an "
      "expert layer of a prompt, first-token wait %.3f, first-token fixed %.1f ms\n",
      fitted.bandwidth, fitted.compute, fitted.seconds_per_layer * 1e6,
      fitted.seconds_per_collective * 1e6, fitted.prefill_seconds_per_expert_layer * 1e3,
      fitted.first_token_wait, fitted.first_token_seconds * 1e3);
  Print("plain 0.8/0.5", ErrorOf(points, kPlainRoofline));
  Print("fitted, same points", ErrorOf(points, fitted));
  Print("fitted, held out", HeldOutError(points));
  for (const std::string source : {"served", "pilot", "series"}) {
    std::vector<MeasuredPoint> subset;
    for (const MeasuredPoint& point : points) {
      if (point.source == source) subset.push_back(point);
    }
    Print((source + ": plain").c_str(), ErrorOf(subset, kPlainRoofline));
    Print((source + ": held out").c_str(), HeldOutError(points, source));
  }
  std::printf("\n%-14s %-24s %6s %8s %10s %10s %10s\n", "device", "model", "batch", "measured",
              "plain", "fitted", "first: measured/plain/fitted");
  for (const MeasuredPoint& point : points) {
    const ServingPrediction plain = Predict(point.deployment, point.load, kPlainRoofline);
    const ServingPrediction ours = Predict(point.deployment, point.load, fitted);
    std::printf("%-14s %-24s %6.0f %7.2fms %8.2fms %8.2fms", point.group.c_str(),
                point.deployment.model.name.c_str(), point.load.concurrency,
                point.seconds_per_output_token * 1e3, plain.seconds_per_output_token * 1e3,
                ours.seconds_per_output_token * 1e3);
    if (point.seconds_to_first_token) {
      std::printf("   %8.0fms %8.0fms %8.0fms", *point.seconds_to_first_token * 1e3,
                  plain.seconds_to_first_token * 1e3, ours.seconds_to_first_token * 1e3);
    }
    std::printf("\n");
  }
  return 0;
}
