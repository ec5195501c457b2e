// tare advise: measures the candidates of a plan, says which to take, and writes the report.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>

#include "advise/advise.h"
#include "advise/explain.h"
#include "advise/live_bench.h"
#include "advise/report_content.h"
#include "advise/report_json.h"
#include "advise/report_markdown.h"
#include "apps/tare/commands.h"
#include "base/units.h"
#include "store/run_store.h"

namespace tare::app {
namespace {

struct AdviseWords {
  std::string plan, out = "tare-report", model, price, language = "en";
  bool json = false;
};

volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

// One line rewritten in place on a terminal; elsewhere a line per measurement.
class AdviseProgressLine {
 public:
  ~AdviseProgressLine() { Clear(); }

  void Show(const advise::AdviseProgress& now) {
    std::string step = fmt::format("{}/{} {}", now.step, now.steps, now.candidate);
    step += ", " + (now.level.empty() ? now.phase : now.level);
    if (!terminal_) {
      if (step != last_step_) std::fprintf(stderr, "%s\n", step.c_str());
      last_step_ = step;
      return;
    }
    constexpr int kWidth = 20;
    const double done = now.steps > 0 ? (now.step - 1 + now.load.share) / now.steps : 0;
    const int full = std::clamp(static_cast<int>(std::lround(done * kWidth)), 0, kWidth);
    std::string bar;
    for (int i = 0; i < kWidth; ++i) bar += i < full ? "█" : "·";
    std::fprintf(stderr, "\r\x1b[2K%s %s: %s  %.1f req/s  %.0f tok/s  %llu ok", bar.c_str(),
                 step.c_str(), now.phase.c_str(), now.load.requests_per_s,
                 now.load.output_tokens_per_s, static_cast<unsigned long long>(now.load.ok));
    if (now.load.failed > 0) {
      std::fprintf(stderr, "  %llu failed", static_cast<unsigned long long>(now.load.failed));
    }
    std::fflush(stderr);
  }
  void Clear() {
    if (terminal_) std::fputs("\r\x1b[2K", stderr);
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  std::string last_step_;
};

Result<std::string> OwnProgram() {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) return Fail(ErrorKind::kIo, "cannot find this program's own file in /proc");
  return std::string(path.data(), static_cast<std::size_t>(length));
}

void PrintAnswer(const advise::Report& report, const advise::Words& words,
                 const advise::ReportFiles& files) {
  const advise::ReportContent content = advise::ContentOf(report, words);
  std::printf("%s\n\n", content.headline.c_str());
  for (const std::string& line : content.why) std::printf("  %s\n", line.c_str());
  std::printf("\n%s\n", advise::RenderTerminalTable(content.comparison).c_str());
  std::printf("report    %s\n", files.html.c_str());
  std::printf("routing   %s\n", files.routing.c_str());
  for (const std::string& command : content.keep_up) std::printf("serve it  %s\n", command.c_str());
}

Result<int> Advise(const AdviseWords& words) {
  advise::PlanOverrides overrides;
  if (!words.model.empty()) overrides.model = words.model;
  if (!words.price.empty()) {
    TARE_TRY(overrides.usd_per_hour, ParseUsdPerHour(words.price));
  }
  TARE_TRY(const advise::Language language, advise::ParseLanguage(words.language));
  TARE_TRY(const advise::Plan plan, advise::LoadPlanFile(words.plan, overrides));
  TARE_TRY(const advise::PriceList prices, advise::LoadPriceList(plan.price_file));
  TARE_TRY(store::RunStore store, store::RunStore::OpenDefault());

  AdviseProgressLine line;
  advise::AdviseProgress latest;
  const auto cancelled = [] { return interrupted != 0; };
  advise::LiveBenchOptions bench_options;
  TARE_TRY(bench_options.program, OwnProgram());
  bench_options.log_dir = std::filesystem::path(words.out) / "logs";
  bench_options.plan_name = plan.name;
  bench_options.cancelled = cancelled;
  bench_options.on_progress = [&](const load::LoadProgress& load) {
    latest.load = load;
    line.Show(latest);
  };
  advise::AdviseOptions options;
  options.program = bench_options.program;
  options.tare_version = TARE_VERSION;
  options.cancelled = cancelled;
  options.on_progress = [&](const advise::AdviseProgress& now) {
    latest = now;
    line.Show(latest);
  };
  std::signal(SIGINT, OnInterrupt);
  std::signal(SIGTERM, OnInterrupt);
  advise::LiveBench bench(std::move(bench_options), std::move(store));
  TARE_TRY(const advise::Report report, advise::Advise(plan, prices, bench, options));
  line.Clear();
  const advise::Words report_words(language);
  TARE_TRY(const advise::ReportFiles files, advise::WriteReport(report, report_words, words.out));
  if (words.json) {
    std::printf("%s\n", advise::ToJson(report).dump(2).c_str());
  } else {
    PrintAnswer(report, report_words, files);
  }
  return report.ranking.verdict == advise::Verdict::kNoneFeasible ? kAnswerIsNo : kSuccess;
}

}  // namespace

void AddAdvise(CLI::App& app, Invocation& invocation) {
  auto* command =
      app.add_subcommand("advise", "Measure candidates, say which to take, write the report");
  auto words = std::make_shared<AdviseWords>();
  command->add_option("PLAN", words->plan, "Plan of candidates, load and service levels (YAML)")
      ->required();
  command->add_option("--out", words->out, "Folder of the report")->capture_default_str();
  command->add_option("--model", words->model, "Model of local candidates that name none");
  command->add_option("--price", words->price, "Price of this machine: 0.12/h, 90/month");
  command->add_option("--lang", words->language, "Language of the report: en, zh")
      ->capture_default_str();
  command->add_flag("--json", words->json, "report.json on stdout");
  command->footer(
      "Example:\n  tare advise examples/demo.yaml --model model.gguf --price 0.12/h\n"
      "Exit code: 0 an answer or a reasoned abstention, 1 no candidate keeps the service levels,\n"
      "2 a mistake in the plan or the flags, 3 nothing could be measured.\n"
      "The plan's keys and how the answer is made: docs/ADVISE.md.");
  command->callback([words, &invocation] {
    invocation.run = [words] {
      const Result<int> code = Advise(*words);
      return code ? *code : Report(code.error());
    };
  });
}

}  // namespace tare::app
