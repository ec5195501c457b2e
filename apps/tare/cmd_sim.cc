// tare sim: predicted throughput and latency of models and machines that are not at hand, and how
// far off such predictions are.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "advise/sim_validation.h"
#include "apps/tare/calibrate_model.h"
#include "apps/tare/commands.h"
#include "apps/tare/local_model_flags.h"
#include "base/files.h"
#include "base/units.h"
#include "econ/measured_points.h"
#include "load/report_text.h"
#include "sim/published_report.h"
#include "sim/simulate.h"
#include "store/run_store.h"

namespace tare::app {
namespace {

struct SimWords {
  std::string plan, catalog;
  bool json = false, no_store = false;
};

struct ValidateWords {
  LocalModelFlags model;
  advise::SimValidationOptions options;
  std::vector<double> loads = {30, 60, 85};
  std::string calibration, duration = "60s", out = "tare-sim-check";
  bool json = false;
};

struct PublishedWords {
  std::string data;
  bool fit = false, json = false;
};

volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

// A line rewritten in place; nothing when standard error is no terminal.
bool ShowProgress(const sim::SimProgress& now) {
  static const bool terminal = ::isatty(STDERR_FILENO) != 0;
  if (terminal) {
    std::fprintf(stderr, "\r\x1b[2Ksimulating: %.0f %%, %.0f s of virtual time, %llu answers",
                 100 * now.share, now.virtual_s, static_cast<unsigned long long>(now.ended));
    std::fflush(stderr);
  }
  return interrupted != 0;
}

void ClearProgress() {
  if (::isatty(STDERR_FILENO) != 0) std::fputs("\r\x1b[2K", stderr);
}

Result<int> Run(const SimWords& words) {
  if (words.plan.empty()) {
    return Fail(ErrorKind::kInvalidArgument, "give a plan: tare sim PLAN.yaml (tare sim --help)");
  }
  TARE_TRY(const econ::Catalog catalog,
           words.catalog.empty() ? econ::Catalog::BuiltIn() : econ::Catalog::Load(words.catalog));
  TARE_TRY(const sim::SimPlan plan, sim::LoadSimPlan(words.plan, catalog));
  std::signal(SIGINT, OnInterrupt);
  std::signal(SIGTERM, OnInterrupt);
  TARE_TRY(sim::Simulation simulation, sim::Simulate(plan, ShowProgress));
  ClearProgress();
  store::RunRecord& record = simulation.record;
  if (!words.no_store) {
    TARE_TRY(store::RunStore store, store::RunStore::OpenDefault());
    TARE_TRY(record.id, store.Save(record));
  }
  if (words.json) {
    nlohmann::json document = store::ToJson(record);
    document.erase("series");
    document["took_s"] = simulation.took_s;
    std::printf("%s\n",
                document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    std::fputs(load::RunReport(record).c_str(), stdout);
    std::printf("\n%s  simulated in %.2f s\n", sim::GroupTable(plan, simulation.outcome).c_str(),
                simulation.took_s);
  }
  return record.valid ? kSuccess : kAnswerIsNo;
}

void Tell(const std::string& what) { std::fprintf(stderr, "%s\n", what.c_str()); }

std::vector<std::string> ServeFlags(const LocalModelFlags& model) {
  std::vector<std::string> flags = {"--dtype",
                                    model.dtype,
                                    "--max-num-seqs",
                                    std::to_string(model.max_num_seqs),
                                    "--max-num-batched-tokens",
                                    std::to_string(model.max_num_batched_tokens),
                                    "--prefill-chunk",
                                    std::to_string(model.prefill_chunk),
                                    "--kv-dtype",
                                    model.kv_dtype};
  const auto add = [&](const char* flag, const std::string& value) {
    flags.insert(flags.end(), {flag, value});
  };
  if (model.threads > 0) add("--threads", std::to_string(model.threads));
  if (model.max_model_len > 0) add("--max-model-len", std::to_string(model.max_model_len));
  if (!model.kv_memory.empty()) add("--kv-memory", model.kv_memory);
  if (model.no_prefix_cache) flags.push_back("--no-prefix-cache");
  return flags;
}

Result<int> Validate(const ValidateWords& words) {
  advise::SimValidationOptions options = words.options;
  TARE_TRY(options.duration, ParseDuration(words.duration));
  options.loads.clear();
  for (const double percent : words.loads) options.loads.push_back(percent / 100);
  TARE_TRY(engine::LocalModelOptions model, words.model.ToOptions());
  TARE_TRY(options.model, engine::ResolveModel(model.model));
  if (words.calibration.empty()) {
    Tell("calibrating");
    TARE_TRY(options.calibration, CalibrateLocalModel(std::move(model)));
  } else {
    TARE_TRY(options.calibration, sim::LoadCalibration(words.calibration));
  }
  std::error_code code;
  options.program = std::filesystem::read_symlink("/proc/self/exe", code).string();
  std::filesystem::create_directories(words.out, code);
  if (code) {
    return Fail(ErrorKind::kIo, "cannot make the folder '{}': {}", words.out, code.message());
  }
  options.folder = words.out;
  options.server_log = std::filesystem::path(words.out) / "server.log";
  options.serve_flags = ServeFlags(words.model);
  options.on_progress = Tell;
  options.cancelled = [] { return interrupted != 0; };
  std::signal(SIGINT, OnInterrupt);
  std::signal(SIGTERM, OnInterrupt);
  TARE_TRY(const advise::SimValidation validation, advise::ValidateSimulation(options));
  TARE_RETURN_IF_ERROR(WriteFileAtomic(std::filesystem::path(words.out) / "calibration.json",
                                       sim::ToJson(validation.calibration).dump(2) + "\n"));
  std::fputs(
      (words.json ? advise::ToJson(validation).dump(2) + "\n" : advise::Table(validation)).c_str(),
      stdout);
  return validation.ok() ? kSuccess : kAnswerIsNo;
}

Result<int> Published(const PublishedWords& words) {
  TARE_TRY(const econ::Catalog catalog, econ::Catalog::BuiltIn());
  const std::filesystem::path data = words.data;
  const std::vector<econ::MeasuredPoint> points = econ::MeasuredPoints(data, catalog);
  if (points.empty()) {
    return Fail(ErrorKind::kNotFound,
                "no measured servers under '{}' (docs/SIMULATION.md names "
                "the data)",
                data.string());
  }
  sim::PublishedReport report{points, sim::FittedEfficiency(), {}, {}};
  if (words.fit) report.efficiency = sim::FitPublished(points, report.efficiency, 2);
  report.error = sim::ErrorOfPublished(points, report.efficiency, [](const std::string& device) {
    Tell("fitting without " + device);
  });
  TARE_TRY(report.replay, sim::ReplayRequests(data / "vllm_requests/RTX4090/Llama-3.1-8B", catalog,
                                              report.efficiency));
  std::fputs((words.json ? sim::ToJson(report).dump(2) + "\n" : sim::Table(report)).c_str(),
             stdout);
  return kSuccess;
}

void AddValidate(CLI::App& sim, Invocation& invocation) {
  auto words = std::make_shared<ValidateWords>();
  CLI::App* command = sim.add_subcommand(
      "validate", "Calibrate, serve, load and simulate a model here; compare the figures");
  words->model.AddTo(*command);
  command
      ->add_option("--loads", words->loads,
                   "Loads that are judged, per cent of the capacity: requests at their own times")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1.0, 99.0));
  command
      ->add_option("--users", words->options.users,
                   "Closed loops of equal requests, judged as well (docs/SIMULATION.md)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--probe-users", words->options.probe_users,
                   "Loads that measure what is outside the steps, rising")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--duration", words->duration, "Of each load that is judged")
      ->capture_default_str();
  command
      ->add_option("--length-cv", words->options.length_cv,
                   "Spread of lengths: standard deviation over mean")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 5.0));
  command->add_option("--input-tokens", words->options.input_tokens, "Of each prompt, mean")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--output-tokens", words->options.output_tokens, "Of each answer, mean")
      ->capture_default_str()
      ->check(CLI::Range(2, 1'000'000));
  command->add_option("--calibration", words->calibration,
                      "Use this calibration instead of making one");
  command
      ->add_option("--out", words->out,
                   "Folder for the calibration, the loads and the server's log")
      ->capture_default_str();
  command->add_flag("--json", words->json, "One JSON document on stdout");
  command->footer(
      "Example:\n  tare sim validate smollm2 --dtype int4 --loads 30,60,85\n"
      "Exit code: 0 every figure within its tolerance, 1 one is not, 2 and 3 as ever.");
  command->callback([words, &invocation] {
    invocation.run = [words] {
      const Result<int> code = Validate(*words);
      return code ? *code : Report(code.error());
    };
  });
}

void AddPublished(CLI::App& sim, Invocation& invocation) {
  auto words = std::make_shared<PublishedWords>();
  CLI::App* command =
      sim.add_subcommand("published", "Simulate servers that others measured, and print the error");
  command->add_option("DATA", words->data, "Folder of the measurements (docs/SIMULATION.md)")
      ->required();
  command->add_flag("--fit", words->fit, "Fit the efficiency factors again");
  command->add_flag("--json", words->json, "One JSON document on stdout");
  command->footer("Example:\n  tare sim published ../shared/data/perf");
  command->callback([words, &invocation] {
    invocation.run = [words] {
      const Result<int> code = Published(*words);
      return code ? *code : Report(code.error());
    };
  });
}

}  // namespace

void AddSim(CLI::App& app, Invocation& invocation) {
  auto words = std::make_shared<SimWords>();
  CLI::App* command = app.add_subcommand(
      "sim", "Predict throughput and latency with the engine's own scheduler, in virtual time");
  command->require_subcommand(0, 1);
  AddValidate(*command, invocation);
  AddPublished(*command, invocation);
  command->add_option("PLAN", words->plan, "Traffic, replicas, router, incidents (YAML)");
  command->add_option("--catalog", words->catalog, "Folder with models/ and hardware/");
  command->add_flag("--no-store", words->no_store, "Do not keep the run (tare runs)");
  command->add_flag("--json", words->json, "One JSON document on stdout (schema tare.run/1)");
  command->footer(
      "Example:\n  tare sim examples/sim/chat_and_batch.yaml\n"
      "Exit code: 0 a simulation that keeps up, 1 one that fails requests or falls behind,\n"
      "2 a mistake in the plan or the flags, 3 a file is missing.\n"
      "The plan's keys, and how far off predictions are: docs/SIMULATION.md.");
  command->callback([command, words, &invocation] {
    if (!command->get_subcommands().empty()) return;  // theirs is the answer
    invocation.run = [words] {
      const Result<int> code = Run(*words);
      return code ? *code : Report(code.error());
    };
  });
}

}  // namespace tare::app
