#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "apps/tare/commands.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "load/arrivals.h"
#include "load/cold_start.h"
#include "load/fleet.h"
#include "load/frame.h"
#include "load/levels.h"
#include "load/rate_search_run.h"
#include "load/report_html.h"
#include "load/report_text.h"
#include "load/runner.h"
#include "load/selftest.h"
#include "load/sweep.h"
#include "store/run_store.h"

namespace tare::app {
namespace {

using load::LoadOptions;
using load::LoadProgress;

// The words of the command line, before they are understood.
struct Words {
  std::string url, name, model, api_key_file, arrival = "poisson", slo, sweep, dataset, burst, ramp;
  std::string duration, warm_up, drain = "30s", think_time = "0", timeout = "5m", out, api = "chat";
  int users = 0, input_tokens = 512, output_tokens = 128, threads = 0, server_pid = 0;
  std::string listen = "127.0.0.1:0", key_file, join, agent_name, patience = "2m";
  int workers = 0, agents = 0;
  std::string serve, serve_dtype, trace_window;
  std::vector<std::string> against;
  std::string search_rate, search_time = "10m";
  double search_resolution = 0.05, good_share = 0.99;
  int turns = 1, turn_tokens = 0;
  int max_input = 0, max_output = 0, cold_starts = 0;
  std::vector<std::string> command;
  std::uint64_t requests = 0, seed = 0;
  std::string rate;
  double speedup = 1, shared_prefix = 0, temperature = 0;
  bool json = false, no_stream = false, insecure = false, no_save = false, self_test = false,
       chunks = false;
};

volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

// A line that is rewritten in place on a terminal, and nothing elsewhere.
class TerminalProgress final : public load::ProgressSink {
 public:
  explicit TerminalProgress(bool on) : on_(on) {}
  ~TerminalProgress() override { Clear(); }

  void OnProgress(const LoadProgress& p) override {
    if (!on_) return;
    constexpr int kWidth = 24;
    const int full = static_cast<int>(std::lround(p.share * kWidth));
    std::string bar;
    for (int i = 0; i < kWidth; ++i) bar += i < full ? "█" : "·";
    std::fprintf(
        stderr, "\r\x1b[2K%-10s %s %5.1f s  %llu in flight  %.1f req/s  %.0f tok/s  %llu ok",
        PhaseName(p.phase), bar.c_str(), p.elapsed_s, static_cast<unsigned long long>(p.in_flight),
        p.requests_per_s, p.output_tokens_per_s, static_cast<unsigned long long>(p.ok));
    if (p.failed > 0) {
      std::fprintf(stderr, "  %llu failed", static_cast<unsigned long long>(p.failed));
    }
    std::fflush(stderr);
    drawn_ = true;
  }
  bool Cancelled() override { return interrupted != 0; }
  void Clear() {
    if (drawn_) std::fputs("\r\x1b[2K", stderr);
    drawn_ = false;
  }

 private:
  static const char* PhaseName(LoadProgress::Phase phase) {
    switch (phase) {
      case LoadProgress::Phase::kPreparing:
        return "preparing";
      case LoadProgress::Phase::kWarmUp:
        return "warm-up";
      case LoadProgress::Phase::kMeasuring:
        return "measuring";
      case LoadProgress::Phase::kDraining:
        return "draining";
    }
    return "";
  }
  bool on_;
  bool drawn_ = false;
};

// "10x:5s/30s": ten times the rate for 5 s, every 30 s.
Status ParseBurst(const std::string& text, load::ArrivalSpec& arrival) {
  if (text.empty()) return {};
  const std::size_t x = text.find("x:");
  const std::size_t slash = text.find('/');
  if (x == std::string::npos || slash == std::string::npos || slash < x) {
    return FailParam("burst", "--burst '{}' is not understood; write 10x:5s/30s", text);
  }
  TARE_TRY(arrival.burst_factor, ParseNumber(text.substr(0, x)));
  TARE_TRY(arrival.burst_for, ParseDuration(text.substr(x + 2, slash - x - 2)));
  TARE_TRY(arrival.burst_every, ParseDuration(text.substr(slash + 1)));
  return {};
}

// "50/60s": up to 50 per second within 60 s.
Status ParseRamp(const std::string& text, load::ArrivalSpec& arrival) {
  if (text.empty()) return {};
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) {
    return FailParam("ramp", "--ramp '{}' is not understood; write 50/60s", text);
  }
  TARE_TRY(arrival.ramp_to, ParseNumber(text.substr(0, slash)));
  TARE_TRY(arrival.ramp_over, ParseDuration(text.substr(slash + 1)));
  return {};
}

Result<LoadOptions> Understand(const Words& words) {
  LoadOptions options;
  options.url = words.url;
  options.name = words.name;
  options.model = words.model;
  if (!words.api_key_file.empty()) {
    TARE_TRY(const std::string key, ReadFile(words.api_key_file, 1 << 16));
    options.api_key = std::string(Trim(key));
  }
  if (words.api != "chat" && words.api != "completions") {
    return FailParam("api", "--api '{}' is not known; use chat or completions", words.api);
  }
  options.api = words.api == "chat" ? load::Api::kChat : load::Api::kCompletions;
  options.stream = !words.no_stream;
  options.temperature = words.temperature;

  load::ArrivalSpec& arrival = options.arrival;
  const bool trace = words.arrival.rfind("trace:", 0) == 0;
  if (words.users > 0 && (!words.rate.empty() || trace || !words.search_rate.empty())) {
    return FailParam(
        "users",
        "--users (closed loop) and --rate, --search-rate or a trace (open loop) exclude "
        "each other");
  }
  if (!words.rate.empty() || trace || !words.search_rate.empty()) {
    TARE_RETURN_IF_ERROR(load::ParseArrival(words.arrival, arrival));
    if (!words.rate.empty()) {
      TARE_TRY(arrival.rate, ParseRatePerSecond(words.rate));
    }
    arrival.speedup = words.speedup;
    TARE_RETURN_IF_ERROR(ParseBurst(words.burst, arrival));
    TARE_RETURN_IF_ERROR(ParseRamp(words.ramp, arrival));
  } else {
    arrival.kind = load::ArrivalSpec::Kind::kClosed;
    arrival.users = words.users > 0 ? words.users : 1;
    if (!words.burst.empty() || !words.ramp.empty()) {
      return FailParam("burst", "--burst and --ramp need --rate");
    }
  }

  std::string_view think = words.think_time;
  if (think.substr(0, 4) == "exp:") {
    arrival.think_exponential = true;
    think.remove_prefix(4);
  }
  TARE_TRY(arrival.think_time, ParseDuration(think));
  if (!words.trace_window.empty()) {
    if (!trace) return FailParam("trace_window", "--trace-window needs --arrival trace:FILE");
    const std::size_t plus = words.trace_window.find('+');
    TARE_TRY(arrival.trace_from, ParseDuration(words.trace_window.substr(0, plus)));
    if (plus != std::string::npos) {
      TARE_TRY(arrival.trace_length, ParseDuration(words.trace_window.substr(plus + 1)));
    }
  }
  options.workload.turns = words.turns;
  options.workload.turn_tokens = words.turn_tokens;
  options.workload.input_tokens = words.input_tokens;
  options.workload.output_tokens = words.output_tokens;
  options.workload.dataset = words.dataset;
  options.workload.shared_prefix = words.shared_prefix;
  options.workload.seed = words.seed;
  options.workload.max_input_tokens = words.max_input;
  options.workload.max_output_tokens = words.max_output;
  TARE_RETURN_IF_ERROR(load::ParseLevels(words.slo, options.levels));
  if (!(words.good_share > 0 && words.good_share < 1)) {
    return FailParam("good_share", "--good-share {:g} is not between 0 and 1", words.good_share);
  }
  options.levels.good_share = words.good_share;
  if (!words.duration.empty()) {
    TARE_TRY(options.duration, ParseDuration(words.duration));
  } else if (words.requests == 0 && !trace) {
    options.duration = std::chrono::seconds(60);
  }
  options.requests = words.requests;
  if (!words.warm_up.empty()) {
    TARE_TRY(const Nanos warm_up, ParseDuration(words.warm_up));
    options.warm_up = warm_up;
  }
  TARE_TRY(options.drain, ParseDuration(words.drain));
  TARE_TRY(options.request_timeout, ParseDuration(words.timeout));
  options.threads = words.threads;
  if (words.server_pid > 0) options.server_pid = words.server_pid;
  options.verify_tls = !words.insecure;
  options.out_dir = words.out;
  options.keep_chunks = words.chunks;
  return options;
}

void PrintJson(const nlohmann::json& document) {
  std::puts(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

Result<store::RunRecord> RunOne(const LoadOptions& options, bool terminal, bool save) {
  TerminalProgress progress(terminal);
  TARE_TRY(store::RunRecord record, load::RunLoad(options, &progress));
  progress.Clear();
  if (save) {
    TARE_TRY(store::RunStore runs, store::RunStore::OpenDefault());
    TARE_TRY(record.id, runs.Save(record));
  }
  if (!options.out_dir.empty()) {
    TARE_RETURN_IF_ERROR(
        WriteFileAtomic(options.out_dir / "report.html", load::HtmlReport(record)));
  }
  return record;
}

std::string SelfProgram() {
  std::error_code code;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", code);
  return code ? "tare" : self.string();
}

// The run store, unless runs are not to be kept.
Result<std::optional<store::RunStore>> OpenStore(bool save) {
  std::optional<store::RunStore> runs;
  if (save) {
    TARE_TRY(store::RunStore opened, store::RunStore::OpenDefault());
    runs.emplace(std::move(opened));
  }
  return runs;
}

Result<std::vector<load::SweepVariant>> Variants(const Words& words) {
  std::vector<load::SweepVariant> variants;
  if (!words.serve_dtype.empty()) {
    if (words.serve.empty()) {
      return FailParam("serve_dtype", "--serve-dtype needs --serve MODEL, the model to start");
    }
    return load::ServeVariants(SelfProgram(), words.serve, words.serve_dtype);
  }
  if (!words.url.empty()) {
    TARE_TRY(load::SweepVariant first, load::ParseVariant(words.url));
    first.model = words.model;
    variants.push_back(std::move(first));
  }
  for (const std::string& text : words.against) {
    TARE_TRY(load::SweepVariant variant, load::ParseVariant(text));
    variants.push_back(std::move(variant));
  }
  return variants;
}

int RunSweep(const LoadOptions& base, const Words& words, bool terminal) {
  const Result<std::vector<int>> users = load::ParseUsers(
      words.sweep.empty() ? std::to_string(std::max(1, words.users)) : words.sweep);
  if (!users) return Report(users.error());
  Result<std::vector<load::SweepVariant>> variants = Variants(words);
  if (!variants) return Report(variants.error());
  Result<std::optional<store::RunStore>> runs = OpenStore(!words.no_save);
  if (!runs) return Report(runs.error());
  load::SweepHooks hooks;
  hooks.run = [&](const LoadOptions& one) -> Result<store::RunRecord> {
    TerminalProgress progress(terminal);
    TARE_TRY(store::RunRecord record, load::RunLoad(one, &progress));
    progress.Clear();
    if (!one.out_dir.empty()) {
      TARE_RETURN_IF_ERROR(WriteFileAtomic(one.out_dir / "report.html", load::HtmlReport(record)));
    }
    return record;
  };
  if (*runs) hooks.keep = [&](const store::RunRecord& record) { return (*runs)->Save(record); };
  hooks.say = [&](const std::string& line) {
    if (!words.json) std::fprintf(stderr, "%s\n", line.c_str());
  };
  hooks.cancelled = [] { return interrupted != 0; };
  const Result<load::SweepResult> result =
      load::RunSweep(base, *users, *std::move(variants), hooks);
  if (!result) return Report(result.error());
  if (!base.out_dir.empty()) {
    const Status written = WriteFileAtomic(base.out_dir / "sweep.html", load::SweepPage(*result));
    if (!written) return Report(written.error());
  }
  if (words.json) {
    PrintJson(load::SweepJson(*result));
  } else {
    std::fputs(load::SweepTable(*result).c_str(), stdout);
    if (!words.out.empty()) std::printf("sweep.html is in %s\n", words.out.c_str());
  }
  return result->valid() ? kSuccess : kAnswerIsNo;
}

int RunSearch(const LoadOptions& options, const Words& words, bool terminal) {
  load::SearchSpec spec;
  Status understood = load::ParseSearchRate(words.search_rate, spec);
  if (!understood) return Report(understood.error());
  const Result<Nanos> budget = ParseDuration(words.search_time);
  if (!budget) return Report(budget.error());
  spec.budget = *budget;
  spec.resolution = words.search_resolution;
  if (!words.duration.empty()) spec.probe = options.duration;
  Result<std::optional<store::RunStore>> runs = OpenStore(!words.no_save);
  if (!runs) return Report(runs.error());
  load::SearchHooks hooks;
  hooks.run = [&](const LoadOptions& one) -> Result<store::RunRecord> {
    TerminalProgress progress(terminal);
    return load::RunLoad(one, &progress);
  };
  if (*runs) hooks.keep = [&](const store::RunRecord& record) { return (*runs)->Save(record); };
  hooks.say = [&](const load::SearchProbe& probe) {
    if (words.json) return;
    std::fprintf(stderr, "%.4g requests/s: %s%s%s\n", probe.rate, ToString(probe.outcome),
                 probe.invalid.empty() ? "" : ", ", probe.invalid.c_str());
  };
  hooks.cancelled = [] { return interrupted != 0; };
  const Result<load::SearchResult> result = load::SearchRate(options, spec, hooks);
  if (!result) return Report(result.error());
  if (!options.out_dir.empty()) {
    const Status written =
        WriteFileAtomic(options.out_dir / "search.html", load::SearchPage(*result));
    if (!written) return Report(written.error());
  }
  if (words.json) {
    PrintJson(load::SearchJson(*result));
  } else {
    std::fputs(load::SearchTable(*result).c_str(), stdout);
    if (!words.out.empty()) std::printf("search.html is in %s\n", words.out.c_str());
  }
  return result->answer.holds ? kSuccess : kAnswerIsNo;
}

// Nothing when the load comes from this process alone.
Result<std::unique_ptr<load::Fleet>> GatherFleet(const Words& words, const LoadOptions& options) {
  if (words.workers == 0 && words.agents == 0) return nullptr;
  if (words.workers > 0 && words.agents > 0) {
    return FailParam("workers", "--workers (of this machine) and --agents exclude each other");
  }
  load::FleetOptions fleet;
  fleet.agents = std::max(words.workers, words.agents);
  TARE_TRY(fleet.patience, ParseDuration(words.patience));
  if (words.workers > 0) {
    fleet.worker_program = SelfProgram();
    fleet.api_key = options.api_key;
    return load::Fleet::Gather(std::move(fleet));
  }
  if (words.key_file.empty()) {
    return FailParam("key_file",
                     "--agents needs --key-file FILE, the key the agents are given too");
  }
  TARE_TRY(const std::string key, ReadFile(words.key_file, 1 << 16));
  fleet.key = std::string(Trim(key));
  TARE_TRY(const auto where, load::ParseHostPort(words.listen));
  fleet.host = where.first;
  fleet.port = where.second;
  if (fleet.port == 0) {
    return FailParam("listen", "--agents needs --listen HOST:PORT, where the agents find it");
  }
  if (!words.json) {
    std::fprintf(stderr, "waiting for %d agents on %s\n", fleet.agents, words.listen.c_str());
  }
  return load::Fleet::Gather(std::move(fleet));
}

int RunAgent(const Words& words) {
  load::AgentOptions options;
  const auto where = load::ParseHostPort(words.join);
  if (!where) return Report(where.error());
  options.host = where->first;
  options.port = where->second;
  options.name = words.agent_name;
  const Result<Nanos> patience = ParseDuration(words.patience);
  if (!patience) return Report(patience.error());
  options.patience = *patience;
  // Workers of one machine get both keys by their environment.
  if (const char* key = std::getenv(load::kAgentKeyVariable)) options.key = key;
  if (const char* key = std::getenv(load::kAgentApiKeyVariable)) options.api_key = key;
  for (const auto& [file, key] :
       {std::pair{&words.key_file, &options.key}, {&words.api_key_file, &options.api_key}}) {
    if (file->empty()) continue;
    const Result<std::string> text = ReadFile(*file, 1 << 16);
    if (!text) return Report(text.error());
    *key = std::string(Trim(*text));
  }
  const Status ran = load::RunAgent(options);
  return ran ? kSuccess : Report(ran.error());
}

int RunSelfTest(bool as_json) {
  load::SelfTestOptions options;
  options.say = [](const std::string& text) {
    std::fprintf(stderr, "self-test: %s\n", text.c_str());
  };
  const Result<load::SelfTestResult> result = load::RunSelfTest(options);
  if (!result) return Report(result.error());
  std::printf("%s\n",
              (as_json ? load::SelfTestJson(*result) : load::SelfTestTable(*result)).c_str());
  return kSuccess;
}

int RunColdStart(const Words& words) {
  load::ColdStartOptions options;
  options.command = words.command;
  options.url = words.url;
  options.model = words.model;
  options.times = words.cold_starts;
  const Result<load::ColdStartResult> result = load::MeasureColdStart(options);
  if (!result) return Report(result.error());
  std::printf("%s\n",
              (words.json ? load::ColdStartJson(*result) : load::ColdStartTable(*result)).c_str());
  return kSuccess;
}

int Run(const Words& words) {
  if (words.self_test) return RunSelfTest(words.json);
  if (words.cold_starts > 0) return RunColdStart(words);
  const bool sweep = !words.sweep.empty() || !words.against.empty() || !words.serve_dtype.empty();
  if (words.url.empty() && words.serve_dtype.empty()) {
    return Report(Error{ErrorKind::kInvalidArgument,
                        "tare load needs the URL of a server, like http://127.0.0.1:8000", "url"});
  }
  Result<LoadOptions> options = Understand(words);
  if (!options) return Report(options.error());
  const Result<std::unique_ptr<load::Fleet>> fleet = GatherFleet(words, *options);
  if (!fleet) return Report(fleet.error());
  options->fleet = fleet->get();
  std::signal(SIGINT, OnInterrupt);
  std::signal(SIGTERM, OnInterrupt);
  const bool terminal = !words.json && ::isatty(STDERR_FILENO) != 0;
  if (sweep) return RunSweep(*options, words, terminal);
  if (!words.search_rate.empty()) return RunSearch(*options, words, terminal);
  const Result<store::RunRecord> record = RunOne(*options, terminal, !words.no_save);
  if (!record) return Report(record.error());
  if (words.json) {
    nlohmann::json document = store::ToJson(*record);
    document.erase("series");  // tare runs export has it
    PrintJson(document);
  } else {
    std::fputs(load::RunReport(*record).c_str(), stdout);
    if (!words.out.empty())
      std::printf("requests.csv, seconds.csv and report.html are in %s\n", words.out.c_str());
  }
  return record->valid ? kSuccess : kAnswerIsNo;
}

}  // namespace

void AddLoad(CLI::App& app, Invocation& invocation) {
  auto words = std::make_shared<Words>();
  CLI::App* command = app.add_subcommand("load", "Load-test an OpenAI-compatible server");
  command->add_option("url", words->url, "The server, with or without /v1");
  command->add_option("--users", words->users, "Closed loop: users that wait for their answers");
  command->add_option(
      "--think-time", words->think_time,
      "Pause of a user after an answer: 2s, or exp:2s for random ones of that mean");
  command->add_option("--rate", words->rate, "Open loop: 12 or 12/s requests per second, 30/min");
  command
      ->add_option(
          "--arrival", words->arrival,
          "poisson, constant, gamma:CV, trace:FILE (Azure CSV, Mooncake JSONL, or a folder of "
          "ServeGen clients)")
      ->capture_default_str();
  command->add_option("--trace-window", words->trace_window,
                      "1h+10m: ten minutes of the trace from its first hour on");
  command->add_option("--burst", words->burst, "10x:5s/30s: ten times the rate for 5 s every 30 s");
  command->add_option("--ramp", words->ramp, "50/60s: from --rate to 50 per second within 60 s");
  command->add_option("--speedup", words->speedup, "Replay a trace this many times as fast");
  command->add_option("--duration", words->duration, "Of the measured window: 60s, 5m")
      ->default_str("60s");
  command->add_option("--requests", words->requests,
                      "End after this many requests instead; with --turns,\n"
                      "sessions begun are played to their end (open loop: this many sessions)");
  command->add_option("--warm-up", words->warm_up, "Before the window, not counted")
      ->default_str("a tenth of the duration, at most 10s");
  command->add_option("--drain", words->drain, "How long answers may take after the window")
      ->capture_default_str();
  command->add_option("--input-tokens", words->input_tokens, "Prompt length")
      ->capture_default_str();
  command->add_option("--output-tokens", words->output_tokens, "Answer length")
      ->capture_default_str();
  command->add_option("--dataset", words->dataset,
                      "File of prompts or conversations: JSONL, ShareGPT JSON or CSV");
  command
      ->add_option("--turns", words->turns,
                   "Sessions of so many turns (of a data set: at most); each sends the whole "
                   "conversation with the server's own answers")
      ->capture_default_str();
  command->add_option("--turn-tokens", words->turn_tokens,
                      "Length of each later message of a session (0: as --input-tokens)");
  command->add_option("--shared-prefix", words->shared_prefix,
                      "Share of each prompt that all have in common (0: none, cache stays cold)");
  command->add_option("--max-input-tokens", words->max_input, "Cut a trace's prompts");
  command->add_option("--max-output-tokens", words->max_output, "Cut a trace's answers");
  command->add_option("--slo", words->slo,
                      "ttft=500ms,itl=50ms (also tpot, e2e): goodput counts "
                      "requests that meet all; ttft_p99=500ms: a percentile");
  command
      ->add_option("--good-share", words->good_share,
                   "Share of requests that must meet all for the levels to hold")
      ->capture_default_str();
  command->add_option("--search-rate", words->search_rate,
                      "LOW:HIGH: find the highest arrival rate between at which --slo holds; "
                      "--duration sets the length of a probe");
  command->add_option("--search-time", words->search_time, "Time for the whole search")
      ->capture_default_str();
  command
      ->add_option("--search-resolution", words->search_resolution,
                   "Relative width of the interval at which the search ends")
      ->capture_default_str();
  command->add_option("--sweep", words->sweep, "Several runs: numbers of users, 1,2,4,8");
  command->add_option("--against", words->against,
                      "NAME=URL: sweep this server too and compare; may be repeated");
  command->add_option("--serve", words->serve, "With --serve-dtype: the model to start");
  command->add_option("--serve-dtype", words->serve_dtype,
                      "bf16,int8,int4: sweep Tare's own server in each (no URL); the first is what "
                      "the others are compared with");
  command->add_option("--seed", words->seed, "Repeat a run's prompts and arrivals (0: drawn)");
  command->add_option("--model", words->model, "Model to ask for")
      ->default_str("the first the server lists");
  command->add_option("--api", words->api, "chat or completions")->capture_default_str();
  command->add_flag("--no-stream", words->no_stream, "Ask for whole answers (no TTFT)");
  command->add_option("--temperature", words->temperature, "Sampling temperature")
      ->capture_default_str();
  command->add_option("--api-key-file", words->api_key_file, "File with the bearer token");
  command->add_flag("--insecure", words->insecure, "Do not verify the TLS certificate");
  command->add_option("--timeout", words->timeout, "Of one request")->capture_default_str();
  command->add_option("--threads", words->threads, "Client threads (0: chosen)");
  command->add_option("--server-pid", words->server_pid, "Process whose memory is watched")
      ->default_str("the listener on a loopback port");
  command->add_option("--name", words->name, "Label of the run");
  command->add_option("--out", words->out, "Directory for requests.csv, seconds.csv, report.html");
  command->add_flag("--chunks", words->chunks,
                    "Every chunk's arrival into chunks.csv.zst of --out, in bounded memory");
  command->add_flag("--no-save", words->no_save, "Do not keep the run in the store");
  command->add_flag("--self-test", words->self_test,
                    "The client's own ceiling and timing error on this machine (no URL)");
  command->add_option("--cold-start", words->cold_starts,
                      "Start the server this many times with the command after -- and time it");
  command->add_option("command", words->command, "With --cold-start: program and arguments");
  command->add_flag("--json", words->json, "The record as JSON on stdout");
  command->add_option("--workers", words->workers,
                      "Send from this many processes of this machine instead of one");
  command->add_option("--agents", words->agents,
                      "Send from this many `tare load agent`s, of other machines too");
  command->add_option("--listen", words->listen, "HOST:PORT where the agents join")
      ->capture_default_str();
  command->add_option("--key-file", words->key_file, "Key that coordinator and agents share");
  command->add_option("--wait", words->patience, "How long to wait for the agents")
      ->capture_default_str();
  command->footer(
      "Example: 100 users for a minute, prompts of 2048 tokens, answers of 512\n"
      "  tare load http://127.0.0.1:8000 --users 100 --duration 60s \\\n"
      "       --input-tokens 2048 --output-tokens 512 --slo ttft=500ms,tpot=50ms\n"
      "Example: the highest rate that keeps its service levels, within ten minutes\n"
      "  tare load http://127.0.0.1:8000 --search-rate 0.5:50 --search-time 10m \\\n"
      "       --slo ttft_p99=500ms,tpot_p50=50ms --out search/\n"
      "Example: a model in three precisions at 1 to 16 users, with a Pareto plot\n"
      "  tare load --serve model.gguf --serve-dtype bf16,int8,int4 --sweep 1,2,4,8,16 \\\n"
      "       --duration 60s --out precisions/\n"
      "Example: from four processes of this machine, merged exactly\n"
      "  tare load http://127.0.0.1:8000 --users 8000 --workers 4 --duration 60s\n"
      "Example: conversations of six turns, two seconds between an answer and the next question\n"
      "  tare load http://127.0.0.1:8000 --users 20 --turns 6 --think-time exp:2s \\\n"
      "       --input-tokens 1024 --turn-tokens 64 --output-tokens 128\n"
      "Example: five cold starts, stage by stage\n"
      "  tare load http://127.0.0.1:8000 --cold-start 5 -- tare serve model.gguf --port 8000\n"
      "Exit code: 0 valid, 1 the run is invalid, 2 wrong usage, 3 the server or a file failed.\n"
      "Definitions of the figures and the rules of validity: docs/LOAD.md.");
  CLI::App* agent = command->add_subcommand(
      "agent", "Send a part of the load of a `tare load --agents` on this or another machine");
  agent->add_option("--join", words->join, "HOST:PORT of the coordinator")->required();
  agent->add_option("--key-file", words->key_file, "Key that coordinator and agents share");
  agent->add_option("--api-key-file", words->api_key_file, "File with the target's bearer token");
  agent->add_option("--name", words->agent_name, "In the record")
      ->default_str("the machine's name");
  agent->add_option("--wait", words->patience, "How long to wait for the coordinator")
      ->capture_default_str();
  agent->footer(
      "Example: two agents and their coordinator\n"
      "  tare load agent --join coordinator:7070 --key-file fleet.key   (on each machine)\n"
      "  tare load http://server:8000 --rate 400 --agents 2 --listen 0.0.0.0:7070 \\\n"
      "       --key-file fleet.key");
  command->callback([words, agent, &invocation] {
    const bool is_agent = agent->parsed();
    invocation.run = [words, is_agent] { return is_agent ? RunAgent(*words) : Run(*words); };
  });
}

}  // namespace tare::app
