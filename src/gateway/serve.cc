#include "gateway/serve.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "api/wire_error.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/units.h"
#include "gateway/admin.h"
#include "gateway/gateway.h"
#include "gateway/local_models.h"
#include "gateway/rollout_keeper.h"
#include "gateway/service_config.h"
#include "gateway/service_log.h"
#include "gateway/signals.h"
#include "net/http_server.h"

namespace tare::gateway {

namespace {

// After the drain's deadline cut-off answers still need to reach their clients.
constexpr Nanos kFlushTime = std::chrono::seconds(2);
// How often the configuration file is looked at, and former models.
constexpr Nanos kTick = std::chrono::seconds(1);

std::string BaseUrl(std::string host, std::uint16_t port, bool tls) {
  if (host == "0.0.0.0" || host == "::") host = "127.0.0.1";
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return fmt::format("{}://{}:{}", tls ? "https" : "http", host, port);
}

net::HttpServerOptions ServerOptions(const std::string& host, std::uint16_t port, int threads) {
  net::HttpServerOptions server;
  server.host = host;
  server.port = port;
  server.threads = threads;
  server.error_content_type = "application/json";
  server.error_body = [](int status, const std::string& message) {
    return api::ErrorBody(status, message);
  };
  return server;
}

// A prompt of 220 KB is in five or six buffers one after the other. By default glibc gives memory
// of that size back to the system at once: 176 page faults a request, and half of its processor
// time (perf, Xeon Sapphire Rapids, 2026-12-01). So it keeps up to kKeptFree at the end of each
// arena; what is as large as weights still comes and goes by itself.
void KeepFreedMemory() {
  constexpr int kKeptFree = 16 << 20, kOwnMapping = 4 << 20;
  mallopt(M_TRIM_THRESHOLD, kKeptFree);
  mallopt(M_MMAP_THRESHOLD, kOwnMapping);
}

// Notices that a file was replaced or edited, once it has stopped changing.
class FileWatch {
 public:
  explicit FileWatch(std::filesystem::path path) : path_(std::move(path)), seen_(Look()) {}
  bool Changed() {
    if (path_.empty()) return false;
    const Stamp now = Look();
    const bool settled = now == previous_ && now.size != 0;
    previous_ = now;
    if (!settled || now == seen_) return false;
    seen_ = now;
    return true;
  }
  // A reload for another reason has read what is there now.
  void Read() { seen_ = Look(); }

 private:
  struct Stamp {
    std::filesystem::file_time_type time{};
    std::uintmax_t size = 0;
    bool operator==(const Stamp&) const = default;
  };
  Stamp Look() const {
    std::error_code error;
    Stamp stamp;
    stamp.time = std::filesystem::last_write_time(path_, error);
    if (!error) stamp.size = std::filesystem::file_size(path_, error);
    return error ? Stamp{} : stamp;
  }
  const std::filesystem::path path_;
  Stamp seen_, previous_;
};

// The running service. Everything but the hooks of other threads belongs to the thread of Run.
class Service {
 public:
  Service(const ServeOptions& options, SignalWaiter& signals, std::FILE* log)
      : options_(options), signals_(signals), log_(log), models_(log), watch_(options.config) {}

  Status Run() {
    TARE_TRY(ServicePlan plan, ReadPlan(options_));
    if (plan.config) admin_ = plan.config->admin;
    TARE_RETURN_IF_ERROR(Bind(plan));
    TARE_TRY(const bool loaded, LoadModels(plan));
    if (!loaded) {
      Print(log_, "stopped   while loading; nothing was running");
      std::_Exit(EXIT_SUCCESS);  // the loader cannot be interrupted and holds nothing to lose
    }
    TARE_RETURN_IF_ERROR(Apply(std::move(plan), SteadyClock().Now()));
    TARE_RETURN_IF_ERROR(StartAdmin());
    PrintExample();
    Watch();
    Drain();
    if (rollouts_) rollouts_->Tend(router_->Rollouts());
    admin_server_.reset();
    server_.reset();
    return {};
  }

 private:
  Status Bind(const ServicePlan& plan) {
    TARE_TRY(ledger_file_, LedgerFile(plan));
    TARE_TRY(ledger_, OpenLedger(ledger_file_));
    TARE_TRY(access_log_, OpenAccessLog(options_, plan));
    readiness_ = std::make_shared<Readiness>(ReadinessFile(plan));
    access_ = plan.access;
    GatewayOptions gateway;
    gateway.version = options_.version;
    gateway.access = plan.access;
    if (admin_.on) gateway.operator_key = admin_.key;
    gateway.ledger = ledger_;
    gateway.access_log = access_log_;
    gateway_.emplace(std::move(gateway));
    net::HttpServerOptions server =
        ServerOptions(options_.host, options_.port, options_.io_threads);
    server.tls_certificate_file = options_.tls_certificate;
    server.tls_key_file = options_.tls_key;
    TARE_TRY(server_,
             net::HttpServer::Start(server, [this](net::HttpRequest request,
                                                   std::shared_ptr<net::ResponseWriter> writer) {
               gateway_->Handle(std::move(request), std::move(writer));
             }));
    url_ = BaseUrl(options_.host, server_->port(), !options_.tls_certificate.empty());
    gateway_->metrics().AddSource([this](Metrics::Families& out) { AppendFamilies(out); });
    return {};
  }

  // On a thread of its own, so that a signal can end it. False when one did.
  Result<bool> LoadModels(const ServicePlan& plan) {
    for (const LocalSpec& spec : plan.specs) {
      Print(log_, "loading   {} ({}/ready says when it is done)", spec.served_name, url_);
    }
    std::optional<Result<LocalModels::Renewal>> loaded;
    std::thread loader([&] {
      loaded = models_.Renew(plan.specs, options_.io_threads);
      signals_.Wake();
    });
    int signal = SIGHUP;
    while (signal == SIGHUP) signal = signals_.Wait();
    if (signal != 0) {
      loader.detach();
      return false;
    }
    loader.join();
    if (!*loaded) return tl::unexpected(std::move(*loaded).error());
    models_.Adopt(std::move((*loaded)->models));
    return true;
  }

  // Lets a plan take over whose models are the current ones.
  Status Apply(ServicePlan plan, Nanos asked) {
    const ModelSet models = models_.Current();
    std::shared_ptr<Upstream> upstream;
    if (plan.config) {
      for (const auto& model : models) {
        AddLocal(*plan.config, model->spec.upstream_name, model->spec.served_name,
                 model->max_model_len(), model->upstream);
      }
      plan.config->router.readiness = readiness_;
      plan.config->router.asked = asked;
      if (router_ == nullptr) {
        // With one I/O thread the router shares it, so that requests cross no thread.
        const bool hosted = options_.io_threads == 1;
        TARE_TRY(router_, Router::Create(std::move(plan.config->router), hosted));
        if (hosted) TARE_RETURN_IF_ERROR(server_->Host(router_->loop()));
      } else {
        TARE_RETURN_IF_ERROR(router_->Reconfigure(std::move(plan.config->router)));
      }
      upstream = router_;
      TARE_RETURN_IF_ERROR(KeepRollouts(*plan.config));
      for (const std::string& warning : plan.config->warnings) LogWarn("{}", warning);
    } else {
      upstream = models.front()->upstream;
    }
    {
      std::lock_guard lock(mutex_);
      access_ = plan.access;
    }
    gateway_->SetAccess(plan.access, ledger_);
    gateway_->SetUpstream(std::move(upstream));
    return {};
  }

  // Roll-outs that are new go on where a former process left them.
  Status KeepRollouts(const GatewayConfig& config) {
    if (router_->Rollouts().empty()) return {};
    if (!rollouts_) {
      std::filesystem::path file = config.rollout_store;
      if (file.empty()) {
        TARE_TRY(const std::filesystem::path dir, UserDataDir());
        file = dir / "rollouts.json";
      }
      rollouts_.emplace(file);
    }
    rollouts_->Adopt(router_->Rollouts());
    return {};
  }

  // All or nothing: a mistake anywhere leaves what serves as it is.
  Status Reload() {
    const Nanos begin = SteadyClock().Now();
    watch_.Read();
    const auto renew = [&]() -> Result<int> {
      TARE_TRY(ServicePlan plan, ReadPlan(options_));
      TARE_TRY(const std::filesystem::path file, LedgerFile(plan));
      TARE_TRY(LocalModels::Renewal renewal, models_.Renew(plan.specs, options_.io_threads));
      if (file != ledger_file_) {
        TARE_TRY(auto ledger, OpenLedger(file));
        std::lock_guard lock(mutex_);
        ledger_ = std::move(ledger);
        ledger_file_ = file;
      }
      ModelSet before = models_.Current();
      models_.Adopt(std::move(renewal.models));
      Status applied = Apply(std::move(plan), begin);
      if (!applied) {
        models_.Adopt(std::move(before));
        return tl::unexpected(std::move(applied).error());
      }
      return renewal.loaded;
    };
    const Result<int> loaded = renew();
    if (const Status renewed = server_->ReloadCertificate(); !renewed) {
      LogWarn("{}; the former certificate goes on", renewed.error().message);
    }
    if (access_log_ != nullptr) {
      if (const Status reopened = access_log_->Reopen(); !reopened) {
        LogWarn("{}; lines go on to the old file", reopened.error().message);
      }
    }
    gateway_->metrics().CountReload(loaded ? "applied" : "refused");
    if (!loaded) {
      Print(log_, "reload    refused, the old configuration goes on: {}", loaded.error().message);
      return tl::unexpected(loaded.error());
    }
    const Nanos took = SteadyClock().Now() - begin;
    readiness_->Note(Channel::kReload, true, took,
                     fmt::format("{} of {} models loaded", *loaded, models_.Current().size()));
    Print(log_, "reloaded  in {}; {} of {} models were loaded anew", FormatDuration(took), *loaded,
          models_.Current().size());
    return {};
  }

  // Until a signal says to stop.
  void Watch() {
    while (true) {
      const int signal = signals_.Wait(kTick);
      models_.Reap();
      if (rollouts_) rollouts_->Tend(router_->Rollouts());
      if (signal == SIGTERM || signal == SIGINT) return;
      std::deque<std::function<void(Status)>> waiting;
      {
        std::lock_guard lock(mutex_);
        waiting.swap(reloads_);
      }
      if (signal != SIGHUP && waiting.empty() && !watch_.Changed()) continue;
      const Status status = Reload();
      for (const auto& done : waiting) done(status);
    }
  }

  // Lets running answers end, new ones be refused; at the deadline cuts what is left, with an error
  // the clients see. A second signal cuts at once.
  void Drain() {
    Print(log_, "draining  running answers have {} to end; a second signal ends at once",
          FormatDuration(options_.drain_timeout));
    gateway_->BeginDrain();
    std::thread impatient([&] {
      int signal = SIGHUP;
      while (signal == SIGHUP) signal = signals_.Wait();
      if (signal != 0) std::_Exit(130);
    });
    auto connections = std::async(
        std::launch::async, [&] { return server_->Drain(options_.drain_timeout + kFlushTime); });
    const bool whole = models_.Drain(SteadyClock().Now() + options_.drain_timeout);
    const bool closed = connections.get();
    signals_.Wake();
    impatient.join();
    Print(log_, "stopped   {}",
          whole && closed ? "every answer was finished"
                          : "answers were cut off at the drain timeout");
  }

  Status StartAdmin() {
    if (!admin_.on) return {};
    AdminHooks hooks;
    hooks.access = [this] {
      std::lock_guard lock(mutex_);
      return access_;
    };
    hooks.ledger = [this] { return Ledger(); };
    hooks.upstreams = [router = router_] { return router->Stats(); };
    hooks.routes = [router = router_] { return router->Routes(); };
    hooks.rollouts = [router = router_] { return router->Rollouts(); };
    hooks.startups = [this] {
      std::vector<ModelStartup> startups;
      for (const auto& model : models_.Current()) {
        startups.push_back({model->spec.served_name, model->startup()});
      }
      return startups;
    };
    hooks.shadows = [router = router_] { return router->Shadows(); };
    hooks.readiness = [readiness = readiness_] { return readiness->Report(); };
    hooks.reload = [this](std::function<void(Status)> done) {
      {
        std::lock_guard lock(mutex_);
        reloads_.push_back(std::move(done));
      }
      signals_.Wake();
    };
    auto admin = std::make_shared<const Admin>(admin_.key, std::move(hooks));
    TARE_TRY(admin_server_,
             net::HttpServer::Start(
                 ServerOptions(admin_.host, admin_.port, 1),
                 [admin](net::HttpRequest request, std::shared_ptr<net::ResponseWriter> writer) {
                   admin->Handle(std::move(request), std::move(writer));
                 }));
    Print(log_, "admin     {}", BaseUrl(admin_.host, admin_server_->port(), false));
    return {};
  }

  void AppendFamilies(Metrics::Families& out) {
    AppendServerFamilies(server_->stats(), out);
    AppendTenantFamilies(*Ledger(), out);
    AppendLogFamilies(access_log_ != nullptr ? access_log_->dropped() : 0, out);
    AppendReadinessFamilies(readiness_->Report(), out);
    const ModelSet models = models_.Current();
    for (const auto& model : models) {
      const std::string name = models.size() > 1 ? model->spec.served_name : "";
      if (model->engine != nullptr) AppendEngineFamilies(model->engine->Stats(), out, name);
      if (model->adapters != nullptr) AppendAdapterFamilies(model->adapters->Stats(), out, name);
      if (model->embedder != nullptr) AppendEmbedderFamilies(model->embedder->Stats(), out, name);
    }
    if (!serving_.load()) return;
    if (router_ != nullptr) {
      AppendUpstreamFamilies(router_->Stats(), out);
      AppendRouteFamilies(router_->Routes(), out);
      std::vector<RolloutReport> rollouts;
      for (const auto& rollout : router_->Rollouts()) rollouts.push_back(rollout->Report());
      AppendRolloutFamilies(rollouts, out);
      AppendShadowFamilies(router_->Shadows(), out);
    }
  }

  std::shared_ptr<QuotaLedger> Ledger() {
    std::lock_guard lock(mutex_);
    return ledger_;
  }

  void PrintExample() {
    serving_.store(true);
    const char* key = access_->open() ? "" : "-H 'Authorization: Bearer KEY' ";
    std::string model;
    bool embeds = false;
    if (router_ != nullptr) {
      const ModelInfo first = router_->Models().front();
      model = first.id;
      embeds = first.embeds;
    } else {
      const auto first = models_.Current().front();
      model = first->spec.served_name;
      embeds = first->embedder != nullptr;
    }
    Print(log_,
          "try       curl {}/v1/{} {}-H 'Content-Type: application/json' -d "
          "'{{\"model\":\"{}\",{}}}'",
          url_, embeds ? "embeddings" : "chat/completions", key, model,
          embeds ? R"("input":"Hello!")" : R"("messages":[{"role":"user","content":"Hello!"}])");
    Print(log_, "listening {}", url_);
  }

  const ServeOptions& options_;
  SignalWaiter& signals_;
  std::FILE* const log_;
  std::string url_;
  AdminConfig admin_;  // of the first configuration: its port and key stay
  std::filesystem::path ledger_file_;
  std::shared_ptr<AccessLog> access_log_;
  std::shared_ptr<Readiness> readiness_;

  std::mutex mutex_;  // guards ledger_, access_, reloads_
  std::shared_ptr<QuotaLedger> ledger_;
  std::shared_ptr<const Access> access_;
  std::deque<std::function<void(Status)>> reloads_;

  // Order of destruction: servers (no more requests), gateway, router, models.
  LocalModels models_;
  std::optional<RolloutKeeper> rollouts_;  // once a roll-out was configured
  FileWatch watch_;
  std::atomic<bool> serving_{false};  // router_ may be read by metrics
  std::shared_ptr<Router> router_;
  std::optional<Gateway> gateway_;
  std::unique_ptr<net::HttpServer> server_;
  std::unique_ptr<net::HttpServer> admin_server_;
};

}  // namespace

Result<ConfigSummary> CheckConfig(const ServeOptions& options) {
  TARE_TRY(const ServicePlan plan, ReadPlan(options));
  ConfigSummary summary;
  if (plan.config) {
    for (const RouteConfig& route : plan.config->router.routes) {
      summary.routes.push_back(Describe(route));
    }
    summary.warnings = plan.config->warnings;
  } else {
    summary.routes.push_back(fmt::format("model '{}': this process", ServedName(options)));
  }
  summary.keys = plan.access->keys.size();
  summary.tenants = plan.access->tenants.size();
  summary.open = plan.access->open();
  return summary;
}

Status Serve(const ServeOptions& options, std::FILE* log) {
  KeepFreedMemory();
  TARE_TRY(SignalWaiter signals, SignalWaiter::Create());
  return Service(options, signals, log).Run();
}

}  // namespace tare::gateway
