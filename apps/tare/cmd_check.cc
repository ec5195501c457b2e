// tare check: a verdict for each published claim of a file.
#include <unistd.h>

#include <cstdio>

#include "apps/tare/commands.h"
#include "base/files.h"
#include "econ/claims_report.h"

namespace tare::app {
namespace {

struct Options {
  std::string file;
  std::string catalog;
  std::string html;
  bool json = false;
};

Result<int> Check(const Options& options) {
  TARE_TRY(econ::Catalog catalog, options.catalog.empty() ? econ::Catalog::BuiltIn()
                                                          : econ::Catalog::Load(options.catalog));
  TARE_TRY(config::Document document, config::Document::Load(options.file));
  TARE_TRY(econ::ClaimsFile claims, econ::ReadClaims(document, catalog));
  const std::vector<econ::JudgedClaim> judged = econ::JudgeAll(claims);
  if (!options.html.empty()) {
    TARE_RETURN_IF_ERROR(WriteFileAtomic(options.html, econ::ClaimsHtml(claims, judged)));
  }
  const std::string text = options.json ? econ::ClaimsJson(claims, judged).dump(2) + "\n"
                                        : econ::ClaimsTable(judged, isatty(STDOUT_FILENO) != 0);
  std::fputs(text.c_str(), stdout);
  return econ::CountVerdicts(judged).any_false() ? kAnswerIsNo : kSuccess;
}

}  // namespace

void AddCheck(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("check", "Judge published claims: what cannot be true, and why");
  command->add_option("claims", options->file, "Claims file (docs/CLAIMS.md)")->required();
  command->add_option("--catalog", options->catalog, "Folder with models/ and hardware/");
  command->add_option("--html", options->html, "Also write a self-contained page here");
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->footer(
      "Exit code 1 when any claim is impossible or inconsistent.\n"
      "Example: tare check examples/claims/spec.yaml --html claims.html");
  command->callback([options, &invocation] {
    invocation.run = [options] {
      Result<int> code = Check(*options);
      return code ? *code : Report(code.error());
    };
  });
}

}  // namespace tare::app
