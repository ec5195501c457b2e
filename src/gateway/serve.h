// `tare serve` from start to end: bind, load, answer, drain.
//
// The port is bound before the model is loaded: a port in use costs no time, and probes get a clear
// "not ready" (503) while loading. SIGTERM and SIGINT drain; a second one ends at once.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "engine/local_model.h"
#include "gateway/gateway_config.h"

namespace tare::gateway {

struct ServeOptions {
  // The engine to run here; absent: remote upstreams only, by `config`.
  std::optional<engine::LocalModelOptions> model;
  std::filesystem::path config;  // tare.yaml; empty: the model alone
  // Reads the flags of a model the configuration names.
  std::function<Result<engine::LocalModelOptions>(const LocalModelConfig&)> local_options;
  std::string name;  // what clients call the model; empty: by the model's file
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  int io_threads = 1;
  std::string tls_certificate, tls_key;  // PEM files; empty: plain HTTP
  std::filesystem::path api_key_file;    // empty: open to all
  std::string access_log;                // a path or "-"; empty: as the configuration says
  Nanos drain_timeout = std::chrono::seconds(30);
  std::string version;
};

// What a configuration holds, for people to read before it is used.
struct ConfigSummary {
  std::vector<std::string> routes;  // "model 'chat': a, then b"
  std::size_t keys = 0, tenants = 0;
  bool open = true;  // to all who can connect
  std::vector<std::string> warnings;
};
// Reads the configuration and checks that its keys can be had. The error has every mistake, one a
// line.
Result<ConfigSummary> CheckConfig(const ServeOptions& options);

// Runs until a signal. `log` gets the lines people and scripts read: what was loaded, an example,
// and "listening http://HOST:PORT" once requests are answered.
Status Serve(const ServeOptions& options, std::FILE* log);

}  // namespace tare::gateway
