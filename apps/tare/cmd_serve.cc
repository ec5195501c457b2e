// tare serve: puts a model, other servers, or both behind one OpenAI-compatible address.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/tare/commands.h"
#include "apps/tare/local_model_flags.h"
#include "base/text.h"
#include "base/units.h"
#include "gateway/serve.h"
#include "model/load.h"

namespace tare::app {
namespace {

struct ServeWords {
  LocalModelFlags model;
  std::string config;
  bool check_config = false;
  bool json = false;
  std::string name;
  std::string host = "127.0.0.1";
  int port = 8000;
  int http_threads = 1;
  int tensor_parallel = 1;
  std::string api_key_file;
  std::string tls_cert, tls_key;
  std::string access_log;
  std::string drain_timeout = "30s";
  std::vector<std::string> adapters;
};

void AddAdaptersTo(CLI::App& parser, std::vector<std::string>& adapters) {
  parser
      .add_option("--lora", adapters,
                  "A LoRA adapter in PEFT's format to serve as well; can be repeated")
      ->type_name("NAME=FOLDER")
      ->allow_extra_args(false);
}

Status TakeAdapters(const std::vector<std::string>& words, engine::LocalModelOptions& options) {
  for (const std::string& word : words) {
    const std::size_t at = word.find('=');
    if (at == std::string::npos || at == 0 || at + 1 == word.size()) {
      return FailParam("lora", "--lora takes NAME=FOLDER, not '{}'", word);
    }
    options.adapters.emplace_back(word.substr(0, at), word.substr(at + 1));
  }
  return {};
}

// The flags of a model that tare.yaml or a routing plan names.
Result<engine::LocalModelOptions> LocalOptions(const gateway::LocalModelConfig& local) {
  CLI::App parser("flags");
  LocalModelFlags flags;
  flags.AddTo(parser);
  std::vector<std::string> adapters;
  AddAdaptersTo(parser, adapters);
  std::vector<std::string> words = local.flags;
  words.insert(words.begin(), {"--model", local.model});
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    parser.parse(words);
  } catch (const CLI::ParseError& error) {
    return FailParam("flags", "its flags cannot be used: {}", error.what());
  }
  TARE_RETURN_IF_ERROR(model::ParseDtype(flags.dtype));
  TARE_TRY(engine::LocalModelOptions options, flags.ToOptions());
  TARE_RETURN_IF_ERROR(TakeAdapters(adapters, options));
  return options;
}

Result<gateway::ServeOptions> ToOptions(const ServeWords& words) {
  gateway::ServeOptions options;
  // Without a configuration a model is always served, the default one if none is named; with one,
  // only a model that is named.
  if (words.config.empty() || !words.model.model.empty()) {
    TARE_TRY(options.model, words.model.ToOptions());
    TARE_RETURN_IF_ERROR(TakeAdapters(words.adapters, *options.model));
    TARE_RETURN_IF_ERROR(engine::ResolveModel(words.model.model));
    TARE_RETURN_IF_ERROR(model::ParseDtype(words.model.dtype));
  } else if (!words.adapters.empty()) {
    return FailParam("lora",
                     "--lora needs the model it adds to: name MODEL too, or put --lora among the "
                     "flags of an upstream of kind local");
  }
  TARE_TRY(options.drain_timeout, ParseDuration(words.drain_timeout));
  if (words.tensor_parallel != 1) {
    return FailParam("tensor-parallel-size",
                     "this engine computes on one machine's cores: --tensor-parallel-size may only "
                     "be 1; use --threads, or --config to spread over several servers");
  }
  options.config = words.config;
  options.local_options = LocalOptions;
  options.name = words.name;
  options.host = words.host;
  options.port = static_cast<std::uint16_t>(words.port);
  options.io_threads = words.http_threads;
  options.api_key_file = words.api_key_file;
  options.tls_certificate = words.tls_cert;
  options.tls_key = words.tls_key;
  options.access_log = words.access_log;
  options.version = TARE_VERSION;
  return options;
}

// The summary, or every mistake, on stderr; with --json as one document on stdout too.
int CheckConfig(const ServeWords& words, const gateway::ServeOptions& options) {
  const auto summary = gateway::CheckConfig(options);
  if (words.json) {
    nlohmann::json out = {{"valid", summary.has_value()}, {"config", words.config}};
    if (summary) {
      out["models"] = summary->routes;
      out["keys"] = summary->keys;
      out["tenants"] = summary->tenants;
      out["open"] = summary->open;
      out["warnings"] = summary->warnings;
    } else {
      out["errors"] = Split(summary.error().message, '\n');
    }
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  if (!summary) return Report(summary.error());
  if (words.json) return kSuccess;
  for (const std::string& route : summary->routes) fmt::print(stderr, "{}\n", route);
  fmt::print(stderr, "keys: {}; tenants: {}\n",
             summary->open ? "none, open to all who can connect" : std::to_string(summary->keys),
             summary->tenants);
  for (const std::string& warning : summary->warnings) {
    fmt::print(stderr, "warning: {}\n", warning);
  }
  if (!words.config.empty()) fmt::print(stderr, "'{}' is valid\n", words.config);
  return kSuccess;
}

int Run(const ServeWords& words) {
  auto options = ToOptions(words);
  if (!options) return Report(options.error());
  if (words.check_config) return CheckConfig(words, *options);
  const Status served = gateway::Serve(*options, stderr);
  return served ? kSuccess : Report(served.error());
}

}  // namespace

void AddServe(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("serve", "Serve a model to any OpenAI client");
  auto words = std::make_shared<ServeWords>();
  words->model.AddTo(*command);
  AddAdaptersTo(*command, words->adapters);
  command->add_option("--name,--served-model-name", words->name,
                      "What clients call the model (default: the file's name)");
  command->add_option("--host", words->host, "Address to listen on; 0.0.0.0 lets others in")
      ->capture_default_str();
  command->add_option("--port", words->port, "0 takes any free port and prints it")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  command->add_option("--http-threads", words->http_threads, "Threads for connections")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--api-key-file", words->api_key_file,
                      "File of keys, one a line; without it everyone who can connect may ask");
  auto* cert = command->add_option("--tls-cert", words->tls_cert,
                                   "PEM file of the certificate chain: speak HTTPS");
  auto* key = command->add_option("--tls-key", words->tls_key, "PEM file of its key");
  cert->needs(key);
  key->needs(cert);
  command->add_option("--access-log", words->access_log,
                      "File for one JSON object a request; - for stderr (default: none)");
  command
      ->add_option("--drain-timeout", words->drain_timeout,
                   "How long running answers may go on after SIGTERM")
      ->capture_default_str();
  command->add_option("--tensor-parallel-size", words->tensor_parallel, "Only 1")
      ->capture_default_str();
  command->add_option("--config", words->config,
                      "tare.yaml: other servers behind this address, keys, "
                      "tenants; or the routing.yaml of tare advise");
  command->add_flag("--check-config", words->check_config,
                    "Only read the configuration and say what is wrong with it");
  command->add_flag("--json", words->json, "What --check-config finds as one JSON document")
      ->needs("--check-config");
  command->footer(
      "Example:\n"
      "  tare serve model.gguf --dtype int4 --port 8000\n"
      "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "       -d "
      "'{\"model\":\"model\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}]}'\n"
      "  tare serve model.gguf --lora sql=adapters/sql    # asked for as \"sql\" or \"model:sql\"\n"
      "  tare serve all-minilm-l6-v2/ --port 8001         # a BERT folder: /v1/embeddings\n"
      "  tare serve --config tare.yaml --check-config     # exit 0 when valid, else every mistake\n"
      "  tare serve --config tare-report/routing.yaml     # what tare advise recommended\n"
      "Endpoints, configuration, errors and metrics: docs/SERVING.md.");
  command->callback([words, &invocation] { invocation.run = [words] { return Run(*words); }; });
}

}  // namespace tare::app
