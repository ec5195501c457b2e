#include <fmt/ranges.h>

#include <cstdio>
#include <string>
#include <vector>

#include "apps/tare/commands.h"
#include "base/log.h"
#include "base/text.h"

namespace tare::app {

int Report(const Error& error) {
  std::fprintf(stderr, "tare: %s\n", error.message.c_str());
  return error.kind == ErrorKind::kInvalidArgument ? kWrongUsage : kOutsideFault;
}

namespace {

// What CLI11 leaves at "A subcommand is required": which word was taken for one, and the nearest
// that exists. Empty when no word was given.
std::string UnknownSubcommand(const CLI::App& app) {
  const CLI::App* innermost = &app;
  while (!innermost->get_subcommands().empty()) {
    innermost = innermost->get_subcommands().front();
  }
  const std::vector<std::string> words = app.remaining(true);
  if (words.empty()) return "";
  std::vector<std::string> names;
  for (const CLI::App* command : innermost->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  const std::string nearest = NearestName(words.front(), names);
  return fmt::format("unknown command '{}'; {}", words.front(),
                     nearest.empty() ? fmt::format("there are {}", fmt::join(names, ", "))
                                     : fmt::format("did you mean '{}'?", nearest));
}

}  // namespace
}  // namespace tare::app

int main(int argc, char** argv) {
  using namespace tare::app;
  CLI::App app("Measure, decide, serve and watch large language models.", "tare");
  app.set_version_flag("--version", std::string("tare ") + TARE_VERSION);
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of every subcommand");
  bool verbose = false;
  app.add_flag("-v,--verbose", verbose, "Log debug messages");

  Invocation invocation;
  AddServe(app, invocation);
  AddGenerate(app, invocation);
  AddBench(app, invocation);
  AddInspect(app, invocation);
  AddLoad(app, invocation);
  AddRuns(app, invocation);
  AddEcon(app, invocation);
  AddCheck(app, invocation);
  AddSim(app, invocation);
  AddAdvise(app, invocation);
  AddEval(app, invocation);
  AddQuantize(app, invocation);

  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    const std::string unknown = UnknownSubcommand(app);
    if (unknown.empty()) return app.exit(error), kWrongUsage;
    return Report(tare::Error{tare::ErrorKind::kInvalidArgument, unknown, "", ""});
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kSuccess : kWrongUsage;
  }
  tare::InitLogging(verbose ? tare::LogLevel::kDebug : tare::LogLevel::kInfo);
  return invocation.run();
}
