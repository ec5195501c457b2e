#include <cstdio>

#include "apps/tare/commands.h"
#include "base/log.h"

namespace tare::app {

int Report(const Error& error) {
  std::fprintf(stderr, "tare: %s\n", error.message.c_str());
  return error.kind == ErrorKind::kInvalidArgument ? kWrongUsage : kOutsideFault;
}

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

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kSuccess : kWrongUsage;
  }
  tare::InitLogging(verbose ? tare::LogLevel::kDebug : tare::LogLevel::kInfo);
  return invocation.run();
}
