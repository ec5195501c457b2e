#include "sim/published_report.h"

#include <fmt/format.h>

namespace tare::sim {
namespace {

using nlohmann::json;

json ToJson(const ErrorFigures& e) {
  return {{"points", e.points},
          {"median", e.median},
          {"mean", e.mean},
          {"worst", e.worst},
          {"worst_what", e.worst_what}};
}

json ToJson(const ErrorPair& e) {
  return {{"output_token", ToJson(e.output_token)}, {"first_token", ToJson(e.first_token)}};
}

json ToJson(const ServingEfficiency& e) {
  return {{"bandwidth", e.step.bandwidth},
          {"compute", e.step.compute},
          {"seconds_per_layer", e.step.seconds_per_layer},
          {"seconds_per_sparse_layer", e.step_overheads.seconds_per_sparse_layer},
          {"seconds_per_collective", e.step.seconds_per_collective},
          {"seconds_per_sequence", e.step_overheads.seconds_per_sequence},
          {"request_seconds", e.overheads.request_seconds}};
}

// The target of docs/SIMULATION.md for the median of each metric.
constexpr double kMedianTarget = 0.15;

std::string Line(const std::string& name, const char* metric, const ErrorFigures& e) {
  if (e.points == 0) return "";
  return fmt::format("  {:<34}{:<6}{:>4}{:>9.0f} %{:>8.0f} %{:>+8.0f} %  {:<34}{}\n", name, metric,
                     e.points, 100 * e.median, 100 * e.mean, 100 * e.worst, e.worst_what,
                     e.median <= kMedianTarget ? "" : "median above 15 %");
}

std::string Lines(const std::string& name, const ErrorPair& e) {
  return Line(name, "TPOT", e.output_token) + Line("", "TTFT", e.first_token);
}

}  // namespace

json ToJson(const PublishedReport& report) {
  json devices = json::array(), points = json::array(), replay = json::array();
  for (const PublishedError::OfDevice& one : report.error.devices) {
    json device = ToJson(one.error);
    device["device"] = one.device;
    device["fitted_otherwise"] = one.fitted;
    devices.push_back(std::move(device));
  }
  for (std::size_t i = 0; i < report.points.size(); ++i) {
    const econ::MeasuredPoint& point = report.points[i];
    const PublishedPrediction& fitted = report.error.predictions[i];
    const PublishedPrediction& without = report.error.without_device[i];
    json one = {{"device", point.group},
                {"model", point.deployment.model.name},
                {"concurrency", point.load.concurrency},
                {"output_token_s", point.seconds_per_output_token},
                {"predicted_output_token_s", fitted.seconds_per_output_token},
                {"predicted_without_device_output_token_s", without.seconds_per_output_token}};
    if (point.seconds_to_first_token) {
      one["first_token_s"] = *point.seconds_to_first_token;
      one["predicted_first_token_s"] = fitted.seconds_to_first_token;
      one["predicted_without_device_first_token_s"] = without.seconds_to_first_token;
    }
    points.push_back(std::move(one));
  }
  for (const ReplayError::Metric& metric : report.replay.metrics) {
    replay.push_back({{"metric", metric.name},
                      {"measured", metric.measured},
                      {"simulated", metric.simulated},
                      {"error", metric.error()}});
  }
  return {{"efficiency", ToJson(report.efficiency)},
          {"fitted", ToJson(report.error.fitted)},
          {"device_left_out", ToJson(report.error.left_out)},
          {"never_fitted", ToJson(report.error.other)},
          {"devices", std::move(devices)},
          {"points", std::move(points)},
          {"replay", std::move(replay)}};
}

std::string Table(const PublishedReport& report) {
  std::string out = fmt::format("efficiency {}\n\n  {:<34}{:<6}{:>4}{:>11}{:>10}{:>10}  {}\n",
                                ToJson(report.efficiency).dump(), "errors", "", "n", "median",
                                "mean", "worst", "where");
  out += Lines("where fitted", report.error.fitted);
  out += Lines("device left out of the fit", report.error.left_out);
  out += Lines("servers of 2023, never fitted", report.error.other);
  out += "\n";
  for (const PublishedError::OfDevice& one : report.error.devices) {
    out += Lines(one.device + (one.fitted ? ", left out" : ", never fitted"), one.error);
  }
  out += fmt::format("\n  {:<12}{:<18}{:>6}{:>12}{:>12}{:>12}{:>16}\n", "device", "model", "users",
                     "measured", "fitted", "error", "left out, error");
  for (std::size_t i = 0; i < report.points.size(); ++i) {
    const econ::MeasuredPoint& point = report.points[i];
    const auto line = [&](const char* what, double measured, double fitted, double without) {
      out += fmt::format(
          "  {:<12}{:<18}{:>6.0f}{:>9.2f} ms{:>9.2f} ms{:>+10.0f} %{:>+14.0f} %  {}\n", point.group,
          point.deployment.model.name, point.load.concurrency, 1e3 * measured, 1e3 * fitted,
          100 * (fitted / measured - 1), 100 * (without / measured - 1), what);
    };
    const PublishedPrediction& fitted = report.error.predictions[i];
    const PublishedPrediction& without = report.error.without_device[i];
    line("TPOT", point.seconds_per_output_token, fitted.seconds_per_output_token,
         without.seconds_per_output_token);
    if (point.seconds_to_first_token) {
      line("TTFT", *point.seconds_to_first_token, fitted.seconds_to_first_token,
           without.seconds_to_first_token);
    }
  }
  out += "\n  replay of 300 requests, vLLM, Llama-3.1-8B on an RTX 4090\n";
  for (const ReplayError::Metric& metric : report.replay.metrics) {
    out += fmt::format("  {:<18}{:>12.4g}{:>12.4g}{:>+8.1f} %\n", metric.name, metric.measured,
                       metric.simulated, 100 * metric.error());
  }
  return out;
}

}  // namespace tare::sim
