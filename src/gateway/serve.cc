#include "gateway/serve.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "api/wire_error.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/units.h"
#include "gateway/gateway.h"
#include "gateway/gateway_config.h"
#include "gateway/local_upstream.h"
#include "gateway/signals.h"
#include "net/http_server.h"

namespace tare::gateway {

namespace {

// After the drain's deadline cut-off answers still need to reach their clients.
constexpr Nanos kFlushTime = std::chrono::seconds(2);

template <typename... Args>
void Print(std::FILE* log, fmt::format_string<Args...> format, Args&&... args) {
  fmt::print(log, format, std::forward<Args>(args)...);
  std::fputc('\n', log);
  std::fflush(log);
}

std::string BaseUrl(const ServeOptions& options, std::uint16_t port) {
  std::string host = options.host;
  if (host == "0.0.0.0" || host == "::") host = "127.0.0.1";
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return fmt::format("http://{}:{}", host, port);
}

// By default the file's name without its ending, or the folder's.
std::string ServedName(const ServeOptions& options) {
  if (!options.name.empty() || !options.model) return options.name;
  const auto resolved = engine::ResolveModel(options.model->model);
  if (!resolved) return options.model->model;
  const std::filesystem::path path =
      resolved->has_filename() ? *resolved : resolved->parent_path();  // "folder/"
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

// The model of this process. The engine goes last of all: clients of it must be gone before.
struct Loaded {
  std::shared_ptr<engine::Engine> engine;  // null: remote upstreams only
  std::shared_ptr<Upstream> upstream;
};

Result<Loaded> Load(const ServeOptions& options, std::FILE* log) {
  const Nanos begin = SteadyClock().Now();
  TARE_TRY(engine::LocalModel model, engine::LoadLocalModel(*options.model));
  Loaded loaded;
  loaded.engine = std::move(model.engine);
  const bool endless = options.model->engine.context_policy == engine::ContextPolicy::kRing;
  loaded.upstream = std::make_shared<LocalUpstream>(
      LocalUpstreamOptions{ServedName(options), endless}, loaded.engine);

  const engine::EngineStats stats = loaded.engine->Stats();
  const engine::StartupTimes& startup = stats.startup;
  const model::ModelConfig& config = loaded.engine->config();
  Print(log, "model     {} ({}, {:.1f} M parameters) as '{}'", model.name, config.family,
        static_cast<double>(config.parameters) / 1e6, ServedName(options));
  Print(log, "weights   {} in {}", FormatBytes(model.weight_bytes), kernels::ToString(model.dtype));
  Print(log, "kv cache  up to {} in {} pages; context {} tokens, up to {} sequences a step",
        FormatBytes(model.kv_memory_bytes), stats.pages_total, loaded.engine->max_model_len(),
        options.model->engine.max_num_seqs);
  Print(log, "threads   {} for kernels, {} for connections", model.threads, options.io_threads);
  Print(log, "start-up  {}: map {}, weights {}, text {}, kv {}, warm-up {}",
        FormatDuration(SteadyClock().Now() - begin), FormatDuration(startup.map_weights),
        FormatDuration(startup.load_weights), FormatDuration(startup.load_text),
        FormatDuration(startup.touch_pages), FormatDuration(startup.warm_kernels));
  return loaded;
}

Result<std::unique_ptr<net::HttpServer>> Listen(const ServeOptions& options, Gateway& gateway) {
  net::HttpServerOptions server;
  server.host = options.host;
  server.port = options.port;
  server.threads = options.io_threads;
  server.error_content_type = "application/json";
  server.error_body = [](int status, const std::string& message) {
    return api::ErrorBody(status, message);
  };
  return net::HttpServer::Start(
      server, [&gateway](net::HttpRequest request, std::shared_ptr<net::ResponseWriter> writer) {
        gateway.Handle(std::move(request), std::move(writer));
      });
}

void PrintExample(const ServeOptions& options, const std::string& model, const std::string& url,
                  std::FILE* log) {
  const char* key = options.api_key_file.empty() ? "" : "-H 'Authorization: Bearer KEY' ";
  Print(log,
        "try       curl {}/v1/chat/completions {}-H 'Content-Type: application/json' -d "
        "'{{\"model\":\"{}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello!\"}}]}}'",
        url, key, model);
  Print(log, "listening {}", url);
}

// Lets running answers end, new ones be refused; at the deadline cuts what is left, with an error
// the clients see. A second signal cuts at once.
void Drain(const ServeOptions& options, Gateway& gateway, net::HttpServer& server,
           engine::Engine* engine, SignalWaiter& signals, std::FILE* log) {
  Print(log, "draining  running answers have {} to end; a second signal ends at once",
        FormatDuration(options.drain_timeout));
  gateway.BeginDrain();
  std::thread impatient([&] {
    if (signals.Wait() != 0) std::_Exit(130);
  });
  auto connections = std::async(std::launch::async,
                                [&] { return server.Drain(options.drain_timeout + kFlushTime); });
  const bool whole =
      engine == nullptr || engine->Drain(SteadyClock().Now() + options.drain_timeout);
  const bool closed = connections.get();
  signals.Wake();
  impatient.join();
  Print(
      log, "stopped   {}",
      whole && closed ? "every answer was finished" : "answers were cut off at the drain timeout");
}

// What requests go to: the engine alone, or a router over it and the configured servers.
Result<std::shared_ptr<Upstream>> Assemble(std::optional<GatewayConfig> config,
                                           const ServeOptions& options, const Loaded& loaded,
                                           Gateway& gateway) {
  if (!config) return loaded.upstream;
  if (loaded.engine != nullptr) {
    AddLocal(*config, ServedName(options), loaded.engine->max_model_len(), loaded.upstream);
  }
  TARE_TRY(std::shared_ptr<Router> router, Router::Create(std::move(config->router)));
  gateway.metrics().AddSource(
      [router](Metrics::Families& out) { AppendUpstreamFamilies(router->Stats(), out); });
  return router;
}

Result<std::optional<GatewayConfig>> ReadConfig(const ServeOptions& options) {
  if (options.config.empty()) {
    return std::optional<GatewayConfig>();
  }
  TARE_TRY(GatewayConfig config, LoadGatewayConfig(options.config));
  if (config.router.routes.empty() && !options.model) {
    return FailParam("models", "'{}' names no model: give it one under 'models'",
                     options.config.string());
  }
  if (config.uses_local && !options.model) {
    return FailParam("model",
                     "'{}' routes to the upstream 'local', but no model is named: add MODEL.gguf",
                     options.config.string());
  }
  return std::optional<GatewayConfig>(std::move(config));
}

}  // namespace

Status CheckConfig(const ServeOptions& options, std::FILE* log) {
  TARE_TRY(const auto config, ReadConfig(options));
  if (!options.api_key_file.empty()) TARE_RETURN_IF_ERROR(ApiKeys::Load(options.api_key_file));
  if (!config) {
    Print(log, "no configuration file; '{}' is served alone", ServedName(options));
    return {};
  }
  for (const RouteConfig& route : config->router.routes) {
    std::string targets;
    for (const TargetConfig& target : route.targets) {
      targets += fmt::format("{}{}", targets.empty() ? "" : ", then ", target.upstream);
    }
    Print(log, "model '{}': {}", route.model, targets);
  }
  Print(log, "'{}' is valid", options.config.string());
  return {};
}

Status Serve(const ServeOptions& options, std::FILE* log) {
  TARE_TRY(SignalWaiter signals, SignalWaiter::Create());
  TARE_TRY(std::optional<GatewayConfig> config, ReadConfig(options));
  GatewayOptions gateway_options;
  gateway_options.version = options.version;
  if (!options.api_key_file.empty()) {
    TARE_TRY(gateway_options.keys, ApiKeys::Load(options.api_key_file));
  }
  // Order of destruction: server (no more requests), gateway, model.
  std::optional<Result<Loaded>> loaded;
  Gateway gateway(std::move(gateway_options));
  TARE_TRY(auto server, Listen(options, gateway));
  const std::string url = BaseUrl(options, server->port());
  gateway.metrics().AddSource(
      [&server](Metrics::Families& out) { AppendServerFamilies(server->stats(), out); });
  std::thread loader([&] {
    if (!options.model) {
      loaded = Loaded{};
    } else {
      Print(log, "loading   {} ({}/ready says when it is done)", ServedName(options), url);
      loaded = Load(options, log);
    }
    signals.Wake();
  });
  if (signals.Wait() != 0) {
    Print(log, "stopped   while loading; nothing was running");
    std::_Exit(EXIT_SUCCESS);  // the loader cannot be interrupted and holds nothing to lose
  }
  loader.join();
  if (!*loaded) return tl::unexpected(std::move(*loaded).error());
  Loaded& model = **loaded;
  if (model.engine != nullptr) {
    gateway.metrics().AddSource([engine = model.engine](Metrics::Families& out) {
      AppendEngineFamilies(engine->Stats(), out);
    });
  }
  TARE_TRY(const auto upstream, Assemble(std::move(config), options, model, gateway));
  gateway.SetUpstream(upstream);
  const std::vector<ModelInfo> models = upstream->Models();
  PrintExample(options, models.front().id, url, log);

  signals.Wait();
  Drain(options, gateway, *server, model.engine.get(), signals, log);
  server.reset();
  return {};
}

}  // namespace tare::gateway
