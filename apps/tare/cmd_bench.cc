// tare bench: the engine alone, and what share of this machine's measured limits it reaches; with
// --calibrate, the step times a simulation needs.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/tare/calibrate_model.h"
#include "apps/tare/commands.h"
#include "apps/tare/local_model_flags.h"
#include "base/files.h"
#include "engine/benchmark.h"
#include "engine/local_model.h"
#include "kernels/limits.h"

namespace tare::app {
namespace {

struct Arguments {
  LocalModelFlags model;
  engine::BenchmarkPlan plan;
  std::vector<int> prompts = {512};
  std::string calibrate;
  bool json = false;
};

nlohmann::json ToJson(const engine::BenchmarkResult& r, double share) {
  return {{"phase", engine::ToString(r.phase)},
          {"batch", r.batch},
          {"prompt_tokens", r.prompt_tokens},
          {"gen_tokens", r.gen_tokens},
          {"tokens_per_s", r.tokens_per_s},
          {"spread", r.spread},
          {"gbps", r.bytes_per_s / 1e9},
          {"tops", r.ops_per_s / 1e12},
          {"limit_share", share}};
}

nlohmann::json ToJson(const kernels::MachineLimits& limits) {
  const auto rate = [](const kernels::Rate& r, double unit) {
    return nlohmann::json{{"one_thread", r.one / unit}, {"all_threads", r.all / unit}};
  };
  return {{"fma_f32_tops", rate(limits.fma_f32, 1e12)},
          {"vnni_int8_tops", rate(limits.vnni_int8, 1e12)},
          {"amx_int8_tops", rate(limits.amx_int8, 1e12)},
          {"amx_bf16_tops", rate(limits.amx_bf16, 1e12)},
          {"read_l2_gbps", rate(limits.read_l2, 1e9)},
          {"read_l3_gbps", rate(limits.read_l3, 1e9)},
          {"read_dram_gbps", rate(limits.read_dram, 1e9)}};
}

void PrintHeader(const engine::LocalModel& local, const kernels::MachineLimits& limits,
                 const engine::Ceiling& ceiling) {
  std::printf("%s, %s weights (%.1f MiB), %d threads, %s\n", local.name.c_str(),
              kernels::ToString(local.dtype), static_cast<double>(local.weight_bytes) / (1 << 20),
              local.threads, limits.cpu.name.c_str());
  std::printf("limits measured here: %.2f TOP/s, %.1f GB/s\n\n", ceiling.ops_per_s / 1e12,
              ceiling.bytes_per_s / 1e9);
  std::printf("%-8s %6s %8s %8s %10s %8s %8s %8s %9s\n", "phase", "batch", "prompt", "answer",
              "tokens/s", "spread", "GB/s", "TOP/s", "of limit");
}

void PrintResult(const engine::BenchmarkResult& r, double share) {
  const std::string bandwidth =
      r.bytes_per_s > 0 ? fmt::format("{:.1f}", r.bytes_per_s / 1e9) : std::string("-");
  std::printf("%-8s %6d %8d %8d %10.1f %7.0f%% %8s %8.3f %8.0f%%\n", engine::ToString(r.phase),
              r.batch, r.prompt_tokens, r.gen_tokens, r.tokens_per_s, 100 * r.spread,
              bandwidth.c_str(), r.ops_per_s / 1e12, 100 * share);
  std::fflush(stdout);
}

// Times the steps of an idle engine and writes what tare sim reads.
Result<int> Calibrate(const Arguments& arguments) {
  TARE_TRY(engine::LocalModelOptions options, arguments.model.ToOptions());
  TARE_TRY(const sim::Calibration calibration, CalibrateLocalModel(std::move(options)));
  const std::string text = sim::ToJson(calibration).dump(2) + "\n";
  TARE_RETURN_IF_ERROR(WriteFileAtomic(arguments.calibrate, text));
  if (arguments.json) {
    std::fputs(text.c_str(), stdout);
  } else {
    std::printf(
        "%s (%s) on %s, %d threads: %zu points in %.0f s\n"
        "error of step times: fitted median %.1f %%, left out median %.1f %%, worst %.1f %% (%s)\n"
        "written to %s; use it as `calibration:` of a group of replicas (tare sim)\n",
        calibration.model.c_str(), calibration.dtype.c_str(), calibration.cpu.c_str(),
        calibration.threads, calibration.points.size(), calibration.took_s,
        100 * calibration.fitted.median, 100 * calibration.left_out.median,
        100 * calibration.left_out.worst, calibration.left_out.worst_what.c_str(),
        arguments.calibrate.c_str());
  }
  return kSuccess;
}

int Run(const Arguments& arguments) {
  if (!arguments.calibrate.empty()) {
    const Result<int> code = Calibrate(arguments);
    return code ? *code : Report(code.error());
  }
  auto options = arguments.model.ToOptions();
  if (!options) return Report(options.error());
  engine::BenchmarkPlan plan = arguments.plan;
  const int largest = *std::max_element(plan.batches.begin(), plan.batches.end());
  const int longest = *std::max_element(arguments.prompts.begin(), arguments.prompts.end());
  const int length = longest + plan.gen_tokens;
  options->engine.max_num_seqs = std::max(options->engine.max_num_seqs, largest);
  options->engine.max_num_batched_tokens =
      std::max(options->engine.max_num_batched_tokens, options->engine.max_num_seqs);
  options->engine.prefix_cache = true;  // keeps the prompts between prefill and decode
  if (options->engine.max_model_len == 0) options->engine.max_model_len = length + 1;
  auto local = engine::LoadLocalModel(*std::move(options));
  if (!local) return Report(local.error());
  plan.weight_bytes = local->weight_bytes;
  plan.kv_bytes_per_token = local->kv_bytes_per_token;
  plan.active_parameters = local->engine->config().active_parameters;

  ThreadPool pool(local->threads);
  const kernels::MachineLimits limits = kernels::MeasureLimits(pool);
  const engine::Ceiling ceiling = engine::CeilingFor(limits, local->dtype, local->weight_bytes);
  if (!arguments.json) PrintHeader(*local, limits, ceiling);
  nlohmann::json results = nlohmann::json::array();
  for (const int prompt : arguments.prompts) {
    plan.prompt_tokens = prompt;
    auto ran = engine::RunBenchmark(*local->engine, plan, [&](const engine::BenchmarkResult& r) {
      const double share = engine::LimitShare(r, ceiling);
      results.push_back(ToJson(r, share));
      if (!arguments.json) PrintResult(r, share);
    });
    if (!ran) return Report(ran.error());
  }
  if (arguments.json) {
    const nlohmann::json document = {
        {"machine",
         {{"cpu", limits.cpu.name}, {"threads", local->threads}, {"limits", ToJson(limits)}}},
        {"model", local->name},
        {"dtype", kernels::ToString(local->dtype)},
        {"results", results}};
    std::printf("%s\n", document.dump(2).c_str());
  }
  return kSuccess;
}

}  // namespace

void AddBench(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("bench", "Speed of the engine alone, against this machine's limits");
  command->footer(
      "Example:\n  tare bench smollm2 --dtype int4 --pp 512,2048 --tg 128 --batch 1,8\n"
      "  tare bench smollm2 --dtype int4 --calibrate smollm2-int4.json");
  arguments->model.AddTo(*command);
  command
      ->add_option("--pp", arguments->prompts,
                   "Prompt tokens of each sequence; decoding is timed behind the prompt")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--tg", arguments->plan.gen_tokens, "Tokens each sequence generates")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 20));
  command->add_option("--batch", arguments->plan.batches, "Sequences at a time")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--repeat", arguments->plan.repeats, "Runs of each; the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  command->add_option("--calibrate", arguments->calibrate,
                      "Time steps over a grid instead (under a minute) and write what tare sim "
                      "needs into this file");
  command->add_flag("--json", arguments->json, "One JSON document on stdout");
  command->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return Run(*arguments); }; });
}

}  // namespace tare::app
