#include <cstdio>
#include <memory>

#include "apps/tare/commands.h"
#include "base/files.h"
#include "base/text.h"
#include "load/report_html.h"
#include "load/report_text.h"
#include "store/run_store.h"

namespace tare::app {
namespace {

using nlohmann::json;

void PrintJson(const json& document) {
  std::puts(document.dump(2, ' ', false, json::error_handler_t::replace).c_str());
}

int List(bool as_json, std::size_t limit) {
  const Result<store::RunStore> runs = store::RunStore::OpenDefault();
  if (!runs) return Report(runs.error());
  const Result<std::vector<store::RunListing>> list = runs->List(limit);
  if (!list) return Report(list.error());
  if (as_json) {
    json document = {{"runs", json::array()}};
    for (const store::RunListing& run : *list) {
      document["runs"].push_back({{"id", run.id},
                                  {"name", run.name},
                                  {"tag", run.tag},
                                  {"started_at", run.started_at},
                                  {"url", run.url},
                                  {"model", run.model},
                                  {"verdict", run.valid ? "valid" : "invalid"},
                                  {"requests", {{"ok", run.ok}, {"failed", run.failed}}},
                                  {"requests_per_s", run.requests_per_s},
                                  {"output_tokens_per_s", run.output_tokens_per_s}});
    }
    PrintJson(document);
  } else {
    std::fputs(load::ListTable(*list).c_str(), stdout);
  }
  return kSuccess;
}

int Show(const std::string& id, bool as_json) {
  const Result<store::RunStore> runs = store::RunStore::OpenDefault();
  if (!runs) return Report(runs.error());
  const Result<store::RunRecord> record = runs->Load(id);
  if (!record) return Report(record.error());
  if (as_json) {
    json document = store::ToJson(*record);
    document.erase("series");
    PrintJson(document);
  } else {
    std::fputs(load::RunReport(*record).c_str(), stdout);
  }
  return kSuccess;
}

int Compare(const std::vector<std::string>& ids, bool as_json) {
  const Result<store::RunStore> runs = store::RunStore::OpenDefault();
  if (!runs) return Report(runs.error());
  std::vector<store::RunRecord> records;
  for (const std::string& id : ids) {
    Result<store::RunRecord> record = runs->Load(id);
    if (!record) return Report(record.error());
    records.push_back(*std::move(record));
  }
  if (as_json) {
    PrintJson(load::ComparisonJson(records));
  } else {
    std::fputs(load::ComparisonTable(records).c_str(), stdout);
  }
  return kSuccess;
}

int Export(const std::string& id, const std::string& format, const std::string& file) {
  const Result<store::RunStore> runs = store::RunStore::OpenDefault();
  if (!runs) return Report(runs.error());
  const Result<store::RunRecord> record = runs->Load(id);
  if (!record) return Report(record.error());
  std::string text;
  if (format == "json") {
    text = store::ToJson(*record).dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  } else if (format == "csv") {
    text = load::RequestsCsv(*record);
  } else if (format == "html") {
    text = load::HtmlReport(*record);
  } else {
    return Report(Error{ErrorKind::kInvalidArgument,
                        fmt::format("--format '{}' is not known; use json, csv or html", format),
                        "format"});
  }
  if (file.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kSuccess;
  }
  const Status written = WriteFileAtomic(file, text);
  return written ? kSuccess : Report(written.error());
}

int Delete(const std::vector<std::string>& ids) {
  Result<store::RunStore> runs = store::RunStore::OpenDefault();
  if (!runs) return Report(runs.error());
  for (const std::string& id : ids) {
    const Result<std::string> removed = runs->Delete(id);
    if (!removed) return Report(removed.error());
    std::printf("deleted %s\n", removed->c_str());
  }
  return kSuccess;
}

}  // namespace

void AddRuns(CLI::App& app, Invocation& invocation) {
  struct Words {
    std::string id, format = "json", out;
    std::vector<std::string> ids;
    std::size_t limit = 0;
    bool json = false;
  };
  auto words = std::make_shared<Words>();
  CLI::App* command = app.add_subcommand("runs", "Runs kept on this machine");
  command->require_subcommand(1);
  command->footer(
      "A run is named by its id, by a beginning of it, by its label (the newest), or \"latest\".\n"
      "Example: tare runs compare int4 bf16\n"
      "         tare runs export latest --format csv > requests.csv");

  CLI::App* list = command->add_subcommand("list", "Newest first");
  list->add_option("--limit", words->limit, "How many (0: all)");
  list->add_flag("--json", words->json, "As JSON");
  list->footer("Example: tare runs list --limit 10");
  list->callback([words, &invocation] {
    invocation.run = [words] { return List(words->json, words->limit); };
  });

  CLI::App* show = command->add_subcommand("show", "One run's figures and verdict");
  show->add_option("run", words->id, "Id, beginning of one, label, or latest")->required();
  show->add_flag("--json", words->json, "As JSON (without the series)");
  show->footer("Example: tare runs show latest");
  show->callback(
      [words, &invocation] { invocation.run = [words] { return Show(words->id, words->json); }; });

  CLI::App* compare =
      command->add_subcommand("compare", "Whether runs differ, with intervals, against the first");
  compare->add_option("runs", words->ids, "Two or more runs")->required()->expected(2, 100);
  compare->add_flag("--json", words->json, "As JSON");
  compare->footer("Example: tare runs compare int4 bf16");
  compare->callback([words, &invocation] {
    invocation.run = [words] { return Compare(words->ids, words->json); };
  });

  CLI::App* export_command = command->add_subcommand("export", "A run as a file");
  export_command->add_option("run", words->id, "Id, beginning of one, label, or latest")
      ->required();
  export_command
      ->add_option("--format", words->format, "json (whole record), csv (requests), html (report)")
      ->capture_default_str();
  export_command->add_option("--out", words->out, "File (default: stdout)");
  export_command->footer("Example: tare runs export latest --format csv --out requests.csv");
  export_command->callback([words, &invocation] {
    invocation.run = [words] { return Export(words->id, words->format, words->out); };
  });

  CLI::App* remove = command->add_subcommand("delete", "Remove runs for good");
  remove->add_option("runs", words->ids, "Ids")->required();
  remove->footer("Example: tare runs delete 20261130-105342-417-7f3a");
  remove->callback(
      [words, &invocation] { invocation.run = [words] { return Delete(words->ids); }; });
}

}  // namespace tare::app
