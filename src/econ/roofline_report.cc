#include "econ/roofline_report.h"

#include <algorithm>
#include <cmath>

#include "econ/links.h"
#include "econ/memory.h"
#include "econ/quantity.h"

namespace tare::econ {
namespace {

constexpr double kMaxBatch = 65'536;

nlohmann::json ModelJson(const ModelFacts& model) {
  const Precision half = *FindPrecision("bf16");
  nlohmann::json weights;
  for (const std::string& name : PrecisionNames()) {
    weights[name] = WeightBytes(model, *FindPrecision(name));
  }
  return {{"name", model.name},
          {"source", model.source},
          {"date", model.date},
          {"parameters",
           {{"total", CountParameters(model).total()},
            {"active", ActiveParameters(model)},
            {"multiplied_per_token", MatmulParametersPerToken(model)}}},
          {"weights_bytes", std::move(weights)},
          {"kv_bytes_per_token", KvBytesPerToken(model, half)},
          {"kv_bytes_per_token_without_latent", ExpandedKvBytesPerToken(model, half)}};
}

nlohmann::json DeviceJson(const Deployment& d) {
  nlohmann::json sources = nlohmann::json::array();
  for (const Provenance& p : d.device.provenance) {
    sources.push_back({{"figure", p.figure}, {"source", p.source}, {"date", p.date}});
  }
  return {{"name", d.device.name},
          {"count", d.devices},
          {"memory_bytes", d.device.memory_bytes},
          {"bandwidth_bytes_per_second", d.device.bandwidth_bytes_per_second},
          {"peak_flop_per_second", PeakFlopPerSecond(d.device, d.weights.name)},
          {"sources", std::move(sources)}};
}

}  // namespace

nlohmann::json RooflineJson(const RooflineQuestion& q) {
  const Deployment& d = q.deployment;
  const double context = q.input_tokens + q.output_tokens;
  const double mean_context = q.input_tokens + q.output_tokens / 2;
  const Efficiency calibrated = CalibratedEfficiency();
  const double largest = *std::max_element(q.batches.begin(), q.batches.end());
  const MemoryFit fit = FitMemory(d.model, d.weights, d.cache, d.device, d.devices, q.memory_share,
                                  std::max(q.input_tokens, 2048.0), largest);
  nlohmann::json batches = nlohmann::json::array();
  for (double batch : q.batches) {
    const StepTime limit = TimeOf(DecodeWork(d, batch, mean_context), d, kPhysicalLimit);
    const ServingLoad load{batch, q.input_tokens, q.output_tokens, false};
    const ServingPrediction predicted = Predict(d, load, calibrated);
    const ServingPrediction plain = Predict(d, load, kPlainRoofline);
    batches.push_back(
        {{"batch", batch},
         {"fits", batch * context <= fit.max_tokens},
         {"decode_ceiling_tokens_per_second", DecodeCeilingTokensPerSecond(d, batch, mean_context)},
         {"bound_by", limit.memory_bound() ? "bandwidth" : "compute"},
         {"distinct_experts_per_layer", ExpectedDistinctExperts(d.model, batch)},
         {"predicted",
          {{"seconds_per_output_token", predicted.seconds_per_output_token},
           {"seconds_to_first_token", predicted.seconds_to_first_token},
           {"output_tokens_per_second", predicted.output_tokens_per_second},
           {"requests_per_second", predicted.requests_per_second}}},
         {"plain_roofline",
          {{"seconds_per_output_token", plain.seconds_per_output_token},
           {"requests_per_second", plain.requests_per_second}}}});
  }
  const Saturation saturation =
      BandwidthSaturation(d, mean_context, q.output_tokens, 0.5, kMaxBatch);
  const PredictionError error = CalibratedHeldOutError();
  const StepWork one = DecodeWork(d, 1, mean_context);
  return {{"model", ModelJson(d.model)},
          {"device", DeviceJson(d)},
          {"precision", {{"weights", d.weights.name}, {"cache", d.cache.name}}},
          {"memory",
           {{"weights_fit", fit.weights_fit},
            {"usable_bytes", fit.usable_bytes},
            {"free_for_kv_bytes", fit.free_for_kv_bytes},
            {"max_batch_times_length_tokens", fit.max_tokens},
            {"largest_batch", std::floor(fit.max_tokens / context)},
            {"rule_of_thumb_tokens", fit.rule_of_thumb_tokens},
            {"rule_of_thumb_over_actual", fit.rule_ratio}}},
          {"prefill_ceiling_tokens_per_second", PrefillCeilingTokensPerSecond(d, q.input_tokens)},
          {"batches", std::move(batches)},
          {"saturation",
           {{"bandwidth_binds_and_compute_below_half_up_to_batch", saturation.batch},
            {"requests_per_second_there", saturation.requests_per_second},
            {"compute_used_there", saturation.compute_used},
            {"compute_binds_from_batch", ComputeBoundBatch(d, mean_context, kMaxBatch)}}},
          {"links",
           {{"bytes_per_device_and_sequence_step", one.link_bytes_per_device},
            {"collectives_per_step", one.collectives},
            {"all_to_all_bytes_per_token", AllToAllBytesPerToken(d.model, d.devices)}}},
          {"efficiency",
           {{"bandwidth", calibrated.bandwidth},
            {"compute", calibrated.compute},
            {"seconds_per_layer", calibrated.seconds_per_layer},
            {"seconds_per_collective", calibrated.seconds_per_collective},
            {"prefill_interference", calibrated.prefill_interference},
            {"first_token_wait", calibrated.first_token_wait}}},
          {"held_out_error",
           {{"seconds_per_output_token_mean", error.output_token_mean},
            {"seconds_per_output_token_median", error.output_token_median},
            {"seconds_to_first_token_mean", error.first_token_mean},
            {"seconds_to_first_token_median", error.first_token_median}}}};
}

std::string RooflineText(const nlohmann::json& a) {
  const auto& model = a["model"];
  const auto& memory = a["memory"];
  std::string text = fmt::format(
      "{} on {} x {}, weights {}, cache {}\n{} parameters, {} multiplied a token; weights {:.4g} "
      "GB, "
      "cache {:.4g} kB a token\n",
      model["name"].get<std::string>(), a["device"]["count"].get<int>(),
      a["device"]["name"].get<std::string>(), a["precision"]["weights"].get<std::string>(),
      a["precision"]["cache"].get<std::string>(),
      FormatSi(model["parameters"]["total"].get<double>()),
      FormatSi(model["parameters"]["multiplied_per_token"].get<double>()),
      model["weights_bytes"][a["precision"]["weights"].get<std::string>()].get<double>() / 1e9,
      model["kv_bytes_per_token"].get<double>() / 1e3);
  if (memory["weights_fit"].get<bool>()) {
    text += fmt::format(
        "batch x length up to {} tokens fit ({} sequences of this length); the rule of thumb "
        "memory/(2 hidden 2) says {:.3g} times that\n",
        FormatNumber(memory["max_batch_times_length_tokens"].get<double>()),
        FormatNumber(memory["largest_batch"].get<double>()),
        memory["rule_of_thumb_over_actual"].get<double>());
  } else {
    text += "the weights do not fit\n";
  }
  text += fmt::format(
      "prefill at most {} tokens/s\n\n{:>6} {:>6} {:>16} {:>10} {:>14} {:>14} {:>12}\n",
      FormatNumber(a["prefill_ceiling_tokens_per_second"].get<double>()), "batch", "fits",
      "ceiling tokens/s", "bound by", "predicted TPOT", "predicted TTFT", "requests/s");
  for (const auto& b : a["batches"]) {
    const auto& p = b["predicted"];
    text += fmt::format(
        "{:>6.0f} {:>6} {:>16} {:>10} {:>11.2f} ms {:>11.0f} ms {:>12.4g}\n",
        b["batch"].get<double>(), b["fits"].get<bool>() ? "yes" : "no",
        FormatNumber(b["decode_ceiling_tokens_per_second"].get<double>()),
        b["bound_by"].get<std::string>(), p["seconds_per_output_token"].get<double>() * 1e3,
        p["seconds_to_first_token"].get<double>() * 1e3, p["requests_per_second"].get<double>());
  }
  const auto& s = a["saturation"];
  const auto& e = a["held_out_error"];
  text += fmt::format(
      "\nbandwidth binds with compute below half up to batch {} ({:.4g} requests/s at the peak); "
      "compute binds from batch {}\nheld-out error of predictions: output token {:.0f} % mean, "
      "{:.0f} % median; first token {:.0f} % mean, {:.0f} % median\n",
      FormatNumber(s["bandwidth_binds_and_compute_below_half_up_to_batch"].get<double>()),
      s["requests_per_second_there"].get<double>(),
      FormatNumber(s["compute_binds_from_batch"].get<double>()),
      e["seconds_per_output_token_mean"].get<double>() * 100,
      e["seconds_per_output_token_median"].get<double>() * 100,
      e["seconds_to_first_token_mean"].get<double>() * 100,
      e["seconds_to_first_token_median"].get<double>() * 100);
  return text;
}

}  // namespace tare::econ
