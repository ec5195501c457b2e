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
          {"unverified", model.unverified},
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
    sources.push_back({{"figure", p.figure},
                       {"source", p.source},
                       {"date", p.date},
                       {"unverified", p.unverified}});
  }
  return {{"name", d.device.name},
          {"count", d.devices},
          {"memory_bytes", d.device.memory_bytes},
          {"bandwidth_bytes_per_second", d.device.bandwidth_bytes_per_second},
          {"peak_flop_per_second", PeakFlopPerSecond(d.device, d.weights.name)},
          {"sources", std::move(sources)}};
}

nlohmann::json ErrorJson(const PredictionError& error) {
  return {{"seconds_per_output_token_mean", error.output_token_mean},
          {"seconds_per_output_token_median", error.output_token_median},
          {"seconds_to_first_token_mean", error.first_token_mean},
          {"seconds_to_first_token_median", error.first_token_median},
          {"output_token_points", error.output_tokens},
          {"first_token_points", error.first_tokens}};
}

std::string ErrorText(const nlohmann::json& error) {
  const auto percent = [&](const char* key) { return error[key].get<double>() * 100; };
  return fmt::format(
      "output token {:.0f} % mean, {:.0f} % median; first token {:.0f} %, {:.0f} %",
      percent("seconds_per_output_token_mean"), percent("seconds_per_output_token_median"),
      percent("seconds_to_first_token_mean"), percent("seconds_to_first_token_median"));
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
  const double compute_bound = ComputeBoundBatch(d, mean_context, kMaxBatch);
  const StepWork one = DecodeWork(d, 1, mean_context);
  return {
      {"model", ModelJson(d.model)},
      {"device", DeviceJson(d)},
      {"precision", {{"weights", d.weights.name}, {"cache", d.cache.name}}},
      {"memory",
       {{"weights_fit", fit.weights_fit},
        {"usable_bytes", fit.usable_bytes},
        {"activation_bytes", ActivationBytes(d.model, std::max(q.input_tokens, 2048.0), largest)},
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
        {"compute_binds_from_batch",
         compute_bound < kMaxBatch ? nlohmann::json(compute_bound) : nlohmann::json(nullptr)}}},
      {"links",
       {{"bytes_per_device_and_sequence_step", one.link_bytes_per_device},
        {"collectives_per_step", one.collectives},
        {"all_to_all_bytes_per_token", AllToAllBytesPerToken(d.model, d.devices)}}},
      {"efficiency",
       {{"bandwidth", calibrated.bandwidth},
        {"compute", calibrated.compute},
        {"seconds_per_layer", calibrated.seconds_per_layer},
        {"seconds_per_collective", calibrated.seconds_per_collective},
        {"prefill_seconds_per_expert_layer", calibrated.prefill_seconds_per_expert_layer},
        {"prefill_interference", calibrated.prefill_interference},
        {"first_token_wait", calibrated.first_token_wait},
        {"first_token_seconds", calibrated.first_token_seconds}}},
      {"held_out_error", ErrorJson(CalibratedHeldOutError())},
      {"plain_roofline_error", ErrorJson(PlainRooflineError())}};
}

namespace {

std::string MemoryText(const nlohmann::json& a) {
  const auto& model = a["model"];
  const auto& memory = a["memory"];
  std::string text = "weights in";
  for (const char* precision : {"bf16", "fp8", "int4"}) {
    text += fmt::format("{} {} {:.4g} GB", precision == std::string_view("bf16") ? "" : ",",
                        precision, model["weights_bytes"][precision].get<double>() / 1e9);
  }
  text += fmt::format("; cache {:.4g} kB a token", model["kv_bytes_per_token"].get<double>() / 1e3);
  const double expanded = model["kv_bytes_per_token_without_latent"].get<double>();
  if (expanded > model["kv_bytes_per_token"].get<double>()) {
    text += fmt::format(" ({:.4g} kB without the latent)", expanded / 1e3);
  }
  text +=
      fmt::format("; working memory {:.3g} GB\n", memory["activation_bytes"].get<double>() / 1e9);
  if (!memory["weights_fit"].get<bool>()) return text + "the weights do not fit\n";
  return text + fmt::format(
                    "batch x length up to {} tokens fit: {} sequences of this length; the rule of "
                    "thumb memory/(2 hidden 2) says {:.3g} times that\n",
                    FormatNumber(memory["max_batch_times_length_tokens"].get<double>()),
                    FormatNumber(memory["largest_batch"].get<double>()),
                    memory["rule_of_thumb_over_actual"].get<double>());
}

std::string SaturationText(const nlohmann::json& a) {
  const auto& s = a["saturation"];
  const double batch = s["bandwidth_binds_and_compute_below_half_up_to_batch"].get<double>();
  std::string text = "\n";
  if (batch >= kMaxBatch) {
    text += "bandwidth binds at every batch, with compute below half of its peak";
  } else if (batch > 0) {
    text += fmt::format(
        "bandwidth binds, with compute below half of its peak, up to batch {} ({:.4g} requests/s "
        "at the peak)",
        FormatNumber(batch), s["requests_per_second_there"].get<double>());
  } else {
    text += "no batch has bandwidth at its peak with compute below half";
  }
  const auto& from = s["compute_binds_from_batch"];
  text += from.is_null()
              ? "; compute never does: what is read of the cache grows with the batch\n"
              : fmt::format("; compute binds from batch {}\n", FormatNumber(from.get<double>()));
  const auto& links = a["links"];
  if (a["device"]["count"].get<int>() > 1) {
    text += fmt::format(
        "each step sends {:.4g} kB a sequence over each device's link in {} "
        "collectives",
        links["bytes_per_device_and_sequence_step"].get<double>() / 1e3,
        links["collectives_per_step"].get<int>());
    const double exchanged = links["all_to_all_bytes_per_token"].get<double>();
    text += exchanged > 0 ? fmt::format(
                                "; experts spread over the devices instead exchange {:.4g} kB a "
                                "token in all\n",
                                exchanged / 1e3)
                          : std::string("\n");
  }
  return text;
}

// Catalogue figures that were not found again in the source they name.
std::string UnverifiedText(const nlohmann::json& a) {
  std::string figures;
  for (const auto& figure : a["device"]["sources"]) {
    if (!figure["unverified"].get<bool>()) continue;
    figures += (figures.empty() ? "" : ", ") + figure["figure"].get<std::string>();
  }
  std::string text;
  if (!figures.empty()) text += fmt::format("not verified in the source named: {}\n", figures);
  if (a["model"]["unverified"].get<bool>()) {
    text += fmt::format(
        "the shapes of {} were not verified in the source named; its count of "
        "parameters agrees with the published one\n",
        a["model"]["name"].get<std::string>());
  }
  return text;
}

}  // namespace

std::string RooflineText(const nlohmann::json& a) {
  const auto& model = a["model"];
  const bool sparse = a["batches"].front()["distinct_experts_per_layer"].get<double>() > 0;
  std::string text = fmt::format(
      "{} on {} x {}, weights {}, cache {}\n{} parameters, {} multiplied a token\n",
      model["name"].get<std::string>(), a["device"]["count"].get<int>(),
      a["device"]["name"].get<std::string>(), a["precision"]["weights"].get<std::string>(),
      a["precision"]["cache"].get<std::string>(),
      FormatSi(model["parameters"]["total"].get<double>()),
      FormatSi(model["parameters"]["multiplied_per_token"].get<double>()));
  text += MemoryText(a);
  text += fmt::format(
      "prefill at most {} tokens/s\n\n{:>6} {:>5} {:>16} {:>10}{} {:>14} {:>14} {:>11} {:>11}\n",
      FormatNumber(a["prefill_ceiling_tokens_per_second"].get<double>()), "batch", "fits",
      "ceiling tokens/s", "bound by", sparse ? "  experts" : "", "predicted TPOT", "predicted TTFT",
      "requests/s", "plain says");
  for (const auto& b : a["batches"]) {
    const auto& p = b["predicted"];
    text += fmt::format(
        "{:>6.0f} {:>5} {:>16} {:>10}{} {:>11.2f} ms {:>11.0f} ms {:>11.4g} {:>11.4g}\n",
        b["batch"].get<double>(), b["fits"].get<bool>() ? "yes" : "no",
        FormatNumber(b["decode_ceiling_tokens_per_second"].get<double>()),
        b["bound_by"].get<std::string>(),
        sparse ? fmt::format("{:>9.1f}", b["distinct_experts_per_layer"].get<double>()) : "",
        p["seconds_per_output_token"].get<double>() * 1e3,
        p["seconds_to_first_token"].get<double>() * 1e3, p["requests_per_second"].get<double>(),
        b["plain_roofline"]["requests_per_second"].get<double>());
  }
  text += SaturationText(a);
  text += UnverifiedText(a);
  text += fmt::format(
      "held-out error of predictions: {}\n"
      "plain roofline (0.8 of the bandwidth, 0.5 of the compute) on the same data: {}\n",
      ErrorText(a["held_out_error"]), ErrorText(a["plain_roofline_error"]));
  return text;
}

}  // namespace tare::econ
