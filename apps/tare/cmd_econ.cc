// tare econ: what serving costs, and what machines can do at most.
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "apps/tare/commands.h"
#include "base/files.h"
#include "econ/cases.h"
#include "econ/quantity.h"
#include "econ/roi_case.h"
#include "econ/roofline_report.h"
#include "econ/run_points.h"
#include "econ/scenario_reader.h"
#include "econ/scenario_report.h"

namespace tare::app {
namespace {

struct Options {
  std::string file;
  std::string catalog;
  bool json = false;
  // tco
  std::uint64_t draws = 100'000;
  std::uint64_t seed = 1;
  int threads = 0;
  std::string html, csv, focus;
  int focus_year = 2027;
  // roofline
  bool list = false;
  std::string model, device, precision = "bf16", cache = "bf16";
  int devices = 1;
  int attention_replicas = 1;
  double input = 1024, output = 256, memory_share = 0.9;
  std::vector<double> batches;
};

Result<econ::Catalog> OpenCatalog(const Options& options) {
  return options.catalog.empty() ? econ::Catalog::BuiltIn() : econ::Catalog::Load(options.catalog);
}

int Print(const Options& options, const nlohmann::json& json, const std::string& text) {
  std::fputs((options.json ? json.dump(2) + "\n" : text).c_str(), stdout);
  return kSuccess;
}

// A run record beside the scenario file.
Result<econ::LoadPoint> LoadRun(const std::filesystem::path& path) {
  TARE_TRY(std::string text, ReadFile(path));
  const nlohmann::json run = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (run.is_discarded()) return Fail(ErrorKind::kCorrupt, "is not JSON");
  return econ::LoadPointFromRun(run);
}

Result<int> Tco(const Options& options) {
  TARE_TRY(econ::Catalog catalog, OpenCatalog(options));
  TARE_TRY(config::Document document, config::Document::Load(options.file));
  const std::filesystem::path folder = std::filesystem::path(options.file).parent_path();
  TARE_TRY(econ::Scenario scenario,
           econ::ReadScenario(document, catalog,
                              [&](std::string_view path) { return LoadRun(folder / path); }));
  ThreadPool pool(options.threads);
  const econ::ScenarioAnswer answer = econ::Answer(scenario, options.draws, options.seed, &pool);
  if (!options.html.empty()) {
    TARE_RETURN_IF_ERROR(WriteFileAtomic(options.html, econ::ScenarioHtml(scenario, answer)));
  }
  if (!options.csv.empty()) {
    TARE_RETURN_IF_ERROR(WriteFileAtomic(options.csv, econ::ScenarioCsv(scenario, answer)));
  }
  if (!options.focus.empty()) {
    TARE_RETURN_IF_ERROR(WriteFileAtomic(
        options.focus, econ::ScenarioFocusCsv(scenario, answer, options.focus_year)));
  }
  return Print(options, econ::ScenarioJson(scenario, answer), econ::ScenarioText(scenario, answer));
}

Result<int> Case(const Options& options, const std::string& kind) {
  TARE_TRY(econ::Catalog catalog, OpenCatalog(options));
  TARE_TRY(config::Document document, config::Document::Load(options.file));
  ThreadPool pool(options.threads);
  TARE_TRY(nlohmann::json answer,
           econ::AnswerCase(kind, document, catalog, {options.draws, options.seed, &pool}));
  if (!options.html.empty()) {
    TARE_RETURN_IF_ERROR(WriteFileAtomic(options.html, econ::RoiHtml(answer)));
  }
  return Print(options, answer, econ::CaseText(kind, answer));
}

int ListCatalog(const Options& options, const econ::Catalog& catalog) {
  nlohmann::json json = {{"models", nlohmann::json::array()}, {"devices", nlohmann::json::array()}};
  std::string text = "models\n";
  for (const econ::ModelFacts& model : catalog.models()) {
    json["models"].push_back(model.name);
    text += fmt::format("  {:<20} {:>8} parameters  {}\n", model.name,
                        econ::FormatSi(econ::CountParameters(model).total()), model.source);
  }
  text += "devices\n";
  for (const econ::DeviceFacts& device : catalog.devices()) {
    json["devices"].push_back(device.name);
    text += fmt::format("  {:<20} {:>6.0f} GB {:>6.0f} GB/s\n", device.name,
                        device.memory_bytes / 1e9, device.bandwidth_bytes_per_second / 1e9);
  }
  return Print(options, json, text);
}

Result<econ::Precision> PrecisionNamed(const std::string& name) {
  if (auto precision = econ::FindPrecision(name)) return *precision;
  const std::vector<std::string> names = econ::PrecisionNames();
  return Fail(ErrorKind::kInvalidArgument, "unknown precision '{}'; there are {}", name,
              fmt::join(names, ", "));
}

Result<int> Roofline(const Options& options) {
  TARE_TRY(econ::Catalog catalog, OpenCatalog(options));
  if (options.list) return ListCatalog(options, catalog);
  if (options.model.empty() || options.device.empty()) {
    return Fail(ErrorKind::kInvalidArgument, "give --model and --device, or --list to see both");
  }
  econ::RooflineQuestion question;
  TARE_TRY(question.deployment.model, catalog.FindModel(options.model));
  TARE_TRY(question.deployment.device, catalog.FindDevice(options.device));
  TARE_TRY(question.deployment.weights, PrecisionNamed(options.precision));
  TARE_TRY(question.deployment.cache, PrecisionNamed(options.cache));
  question.deployment.devices = options.devices;
  question.deployment.attention_replicas = options.attention_replicas;
  if (econ::PeakFlopPerSecond(question.deployment.device, options.precision) <= 0) {
    return Fail(ErrorKind::kUnsupported, "the catalogue has no {} peak for {}; add it to the file",
                options.precision, options.device);
  }
  question.input_tokens = options.input;
  question.output_tokens = options.output;
  question.memory_share = options.memory_share;
  if (!options.batches.empty()) question.batches = options.batches;
  const nlohmann::json answer = econ::RooflineJson(question);
  return Print(options, answer, econ::RooflineText(answer));
}

using Action = std::function<Result<int>(const Options&)>;

// A subcommand of econ with the flags all share.
CLI::App* AddAction(CLI::App* econ, const std::string& name, const std::string& help,
                    const std::string& example, const std::shared_ptr<Options>& options,
                    Action action, Invocation& invocation) {
  CLI::App* command = econ->add_subcommand(name, help);
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->add_option("--catalog", options->catalog, "Folder with models/ and hardware/");
  command->footer("Example: tare econ " + example);
  command->callback([options, action = std::move(action), &invocation] {
    invocation.run = [options, action] {
      Result<int> code = action(*options);
      return code ? *code : Report(code.error());
    };
  });
  return command;
}

void AddUncertaintyFlags(CLI::App* command, const std::shared_ptr<Options>& options) {
  command->add_option("--draws", options->draws, "Monte Carlo draws when inputs are uncertain")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{100'000'000}))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the draws")->capture_default_str();
  command->add_option("--threads", options->threads, "0: one per core; never changes the result")
      ->check(CLI::Range(0, 1024));
  command->add_option("--html", options->html, "Write a self-contained page with charts");
}

void AddTco(CLI::App* econ, const std::shared_ptr<Options>& options, Invocation& invocation) {
  CLI::App* tco = AddAction(econ, "tco", "Total cost of serving a demand, option by option",
                            "tco examples/scenarios/self_built_or_rented.yaml --html cost.html",
                            options, Tco, invocation);
  tco->add_option("scenario", options->file, "Scenario file (docs/ECONOMICS.md)")->required();
  AddUncertaintyFlags(tco, options);
  tco->add_option("--csv", options->csv, "Write yearly costs");
  tco->add_option("--focus", options->focus, "Write monthly costs as FOCUS 1.0 rows");
  tco->add_option("--focus-year", options->focus_year, "Year of the first FOCUS month")
      ->check(CLI::Range(1970, 2200))
      ->capture_default_str();
}

void AddRoofline(CLI::App* econ, const std::shared_ptr<Options>& options, Invocation& invocation) {
  CLI::App* roofline = AddAction(
      econ, "roofline", "What fits and how fast it can be, on any device of the catalogue",
      "roofline --model deepseek-v3 --device h200 --devices 8 --precision fp8", options, Roofline,
      invocation);
  roofline->add_flag("--list", options->list, "Models and devices of the catalogue");
  roofline->add_option("--model", options->model, "Model name or alias");
  roofline->add_option("--device", options->device, "Device name or alias");
  roofline->add_option("--devices", options->devices, "Devices of one replica")
      ->check(CLI::Range(1, 100'000));
  roofline
      ->add_option("--attention-replicas", options->attention_replicas,
                   "Ranks that hold all attention weights")
      ->check(CLI::Range(1, 100'000));
  roofline->add_option("--precision", options->precision, "Of the weights")->capture_default_str();
  roofline->add_option("--cache", options->cache, "Precision of keys and values")
      ->capture_default_str();
  roofline->add_option("--input", options->input, "Prompt tokens")->check(CLI::Range(1.0, 1e8));
  roofline->add_option("--output", options->output, "Output tokens")->check(CLI::Range(1.0, 1e8));
  roofline->add_option("--memory-share", options->memory_share, "Of the memory a server may use")
      ->check(CLI::Range(0.01, 1.0));
  roofline->add_option("--batch", options->batches, "Batches, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(1.0, 1e6));
}

}  // namespace

void AddEcon(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* econ = app.add_subcommand("econ", "Cost, return, rooflines and published formulas");
  econ->require_subcommand(1);
  econ->footer("Example: tare econ tco examples/scenarios/self_built_or_rented.yaml");
  AddTco(econ, options, invocation);
  AddRoofline(econ, options, invocation);
  const std::pair<const char*, const char*> cases[] = {
      {"roi", "Return on investment by quarter, with its sensitivity (EC5)"},
      {"complexity", "Operations-complexity index (EC4)"},
      {"hidden", "Drift detection, prompt staff, audits (EC6)"},
      {"penalty", "Penalties avoided by fewer false positives (EC7)"},
      {"maas", "Self-built, hybrid or cloud, discounted (EC8)"},
      {"compute", "Compute of a request (EC2)"},
      {"training", "Training in device-days (EC9)"},
      {"link", "Caches over PCIe and NVLink, all-to-all traffic (EC11)"}};
  for (auto [name, help] : cases) {
    const std::string kind = name;
    CLI::App* command = AddAction(
        econ, kind, help, fmt::format("{} examples/scenarios/{}.yaml", kind, kind), options,
        [kind](const Options& o) { return Case(o, kind); }, invocation);
    command->add_option("scenario", options->file, "Case file (docs/ECONOMICS.md)")->required();
    if (kind == "roi") AddUncertaintyFlags(command, options);
  }
}

}  // namespace tare::app
