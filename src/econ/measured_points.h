// The measured servers of perf/ as calibration points (see measured_data.h for where they lie):
//   silicon_refs_half.csv  served models on data-centre GPUs (aiconfigurator)
//   llm_pilot/summary.csv  llama-7b at 1-128 users on A10, A100, 2 x T4 (IBM)
//   vllm_requests          Llama-3.1-8B on an RTX 4090, one point each second of pure decoding
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "econ/calibration.h"
#include "econ/catalog.h"
#include "econ/measured_data.h"

namespace tare::econ {

inline double CsvNumber(const CsvRow& row, const char* column, double fallback = 0) {
  const auto cell = row.find(column);
  if (cell == row.end() || cell->second.empty()) return fallback;
  return std::strtod(cell->second.c_str(), nullptr);
}

inline void AddServedModels(const std::filesystem::path& folder, const Catalog& catalog,
                            std::vector<MeasuredPoint>& points) {
  constexpr double kSaturatedMilliseconds = 5000;
  for (const CsvRow& row : ReadCsv(folder / "silicon_refs_half.csv")) {
    auto model = catalog.FindModel(row.at("model_path"));
    auto device = catalog.FindDevice(row.at("system"));
    if (!model || !device) continue;
    const std::string& precision = row.at("precision");
    const bool split = row.at("mode") == "disagg";
    const std::string prefix = split ? "decode_" : "";
    auto number = [&](const char* name) { return CsvNumber(row, (prefix + name).c_str(), 1); };
    const int ranks = static_cast<int>(number("attention_dp_size"));
    MeasuredPoint point;
    point.source = "served";
    point.group = device->name;
    point.deployment = {*model,
                        *device,
                        static_cast<int>(number("tp_size") * number("pp_size")) * ranks,
                        *FindPrecision(precision == "fp4"   ? "nvfp4"
                                       : precision == "fp8" ? "fp8"
                                                            : "bf16"),
                        *FindPrecision("bf16"),
                        ranks};
    point.load = {number("batch_size") * ranks, CsvNumber(row, "isl"), CsvNumber(row, "osl"),
                  split};
    point.seconds_per_output_token = CsvNumber(row, "silicon_tpot_ms") / 1000;
    // A first token after many seconds measures a growing queue, not the devices.
    if (CsvNumber(row, "silicon_ttft_ms") > kSaturatedMilliseconds && !split) continue;
    // With prefill elsewhere the first token depends on devices and queues the row does not hold.
    if (!split) point.seconds_to_first_token = CsvNumber(row, "silicon_ttft_ms") / 1000;
    points.push_back(std::move(point));
  }
}

inline void AddPilotRuns(const std::filesystem::path& folder, const Catalog& catalog,
                         std::vector<MeasuredPoint>& points) {
  // Lengths are not in the data: outputs average output rate / request rate; prompts are taken as
  // 256 tokens (the first tokens of one user on A10 and A100 differ by
  // what 180 tokens take at 0.54 of the peaks and 265 at 0.8).
  constexpr double kPromptTokens = 256;
  constexpr double kMaxErrorRate = 0.02;
  for (const CsvRow& row : ReadCsv(folder / "llm_pilot/summary.csv")) {
    const double errors = CsvNumber(row, "requests") - CsvNumber(row, "ok");
    if (errors > kMaxErrorRate * CsvNumber(row, "requests")) continue;
    const std::string gpu = row.at("gpu") == "a100" ? "a100-80" : row.at("gpu");
    MeasuredPoint point;
    point.source = "pilot";
    point.group = gpu;
    point.deployment = {*catalog.FindModel("llama-7b"),
                        *catalog.FindDevice(gpu),
                        static_cast<int>(CsvNumber(row, "n_gpu")),
                        *FindPrecision("fp16"),
                        *FindPrecision("fp16"),
                        1};
    point.load = {CsvNumber(row, "users"), kPromptTokens,
                  CsvNumber(row, "out_tok_per_s") / CsvNumber(row, "req_per_s"), false};
    point.seconds_per_output_token = CsvNumber(row, "gap_p50_ms") / 1000;
    point.seconds_to_first_token = CsvNumber(row, "ttft_p50_ms") / 1000;
    points.push_back(std::move(point));
  }
}

inline void AddVllmSeries(const std::filesystem::path& folder, const Catalog& catalog,
                          std::vector<MeasuredPoint>& points) {
  constexpr double kCacheTokens = 41'408;  // meta.json: kv_cache.num_kv_tokens
  constexpr int kEvery = 12;               // seconds: neighbours say the same
  int second = 0;
  for (const CsvRow& row : ReadCsv(folder / "vllm_requests/RTX4090/Llama-3.1-8B/timeseries.csv")) {
    const double running = CsvNumber(row, "running");
    const double rate = CsvNumber(row, "gen_throughput");
    if (CsvNumber(row, "prompt_throughput") > 0 || running < 1 || rate <= 0) continue;
    if (second++ % kEvery != 0) continue;
    const double context = CsvNumber(row, "kv_cache_pct") / 100 * kCacheTokens / running;
    MeasuredPoint point;
    point.source = "series";
    point.group = "rtx-4090";
    point.deployment = {*catalog.FindModel("llama-3-8b"), *catalog.FindDevice("rtx-4090"), 1,
                        *FindPrecision("bf16"),           *FindPrecision("bf16"),          1};
    point.load = {running, context, 1, true};
    point.seconds_per_output_token = running / rate;
    points.push_back(std::move(point));
  }
}

inline std::vector<MeasuredPoint> MeasuredPoints(const std::filesystem::path& folder,
                                                 const Catalog& catalog) {
  std::vector<MeasuredPoint> points;
  AddServedModels(folder, catalog, points);
  AddPilotRuns(folder, catalog, points);
  AddVllmSeries(folder, catalog, points);
  return points;
}

}  // namespace tare::econ
