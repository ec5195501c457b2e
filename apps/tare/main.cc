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

std::string Nearest(const std::string& word, const std::vector<std::string>& names,
                    const std::string& otherwise) {
  const std::string nearest = NearestName(word, names);
  return nearest.empty() ? otherwise : fmt::format("did you mean '{}'?", nearest);
}

// The first word that means nothing here, and the nearest one that does: CLI11 says of it at most
// that something is required or not expected. Empty when there is no such word.
std::string UnknownWord(const CLI::App& app) {
  const CLI::App* innermost = &app;
  std::string command = app.get_name();
  while (!innermost->get_subcommands().empty()) {
    innermost = innermost->get_subcommands().front();
    command += " " + innermost->get_name();
  }
  const std::vector<std::string> words = app.remaining(true);
  if (words.empty()) return "";
  const std::string& word = words.front();
  const std::string help = fmt::format("{} --help lists what there is", command);
  std::vector<std::string> names;
  if (word.starts_with('-')) {
    for (const CLI::Option* option : innermost->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string name = word.substr(0, word.find('='));
    return fmt::format("unknown option '{}'; {}", name, Nearest(name, names, help));
  }
  for (const CLI::App* one : innermost->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(one->get_name());
  }
  if (names.empty()) return fmt::format("'{}' is one argument too many; {}", word, help);
  return fmt::format("unknown command '{}'; {}", word,
                     Nearest(word, names, fmt::format("there are {}", fmt::join(names, ", "))));
}

// Something is required or not expected; true when an unknown word explains it.
bool ReportUnknownWord(const CLI::App& app) {
  const std::string unknown = UnknownWord(app);
  if (unknown.empty()) return false;
  Report(Error{ErrorKind::kInvalidArgument, unknown, "", ""});
  return true;
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
    if (!ReportUnknownWord(app)) app.exit(error);
    return kWrongUsage;
  } catch (const CLI::ExtrasError& error) {
    if (!ReportUnknownWord(app)) app.exit(error);
    return kWrongUsage;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kSuccess : kWrongUsage;
  }
  tare::InitLogging(verbose ? tare::LogLevel::kDebug : tare::LogLevel::kInfo);
  return invocation.run();
}
