// The operator's side: /admin/* on a port and with a key of its own.
//
//   GET /admin/usage[?month=2026-11]: what tenants used and cost, and where their limits stand
//
//   GET /admin/upstreams: upstreams and queues
//
//   GET /admin/startup: how long each stage took to get this process's models ready
//
//   GET /admin/rollouts: every roll-out with its state, gates and bounds
//
//   POST /admin/rollouts {"model","state":"promoted"|"rolled_back"}: decides by hand
//
//   POST /admin/reload: reads the configuration again; answers when it took over
//
// Thread safety: Handle may be called from any thread and does not block.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/stats.h"
#include "gateway/access.h"
#include "gateway/quota.h"
#include "gateway/router.h"
#include "net/http_server.h"

namespace tare::gateway {

struct ModelStartup {
  std::string model;
  engine::StartupTimes times;
};

struct AdminHooks {
  std::function<std::shared_ptr<const Access>()> access;
  std::function<std::shared_ptr<QuotaLedger>()> ledger;
  std::function<std::vector<UpstreamStats>()> upstreams;
  std::function<std::vector<RouteStats>()> routes;
  std::function<std::vector<std::shared_ptr<Rollout>>()> rollouts;
  std::function<std::vector<ModelStartup>()> startups;  // of the models of this process
  std::function<std::vector<ShadowReport>()> shadows;
  std::function<std::vector<ReadinessReport>()> readiness;
  // Starts a reload; `done` is called once, from any thread, with its outcome.
  std::function<void(std::function<void(Status)> done)> reload;
};

class Admin {
 public:
  Admin(KeyHash key, AdminHooks hooks);
  void Handle(net::HttpRequest request, std::shared_ptr<net::ResponseWriter> writer) const;

 private:
  bool Allowed(const net::HttpRequest& request) const;
  Result<std::string> Usage(std::string_view query) const;
  std::string Upstreams() const;
  std::string Startups() const;
  std::string Rollouts() const;
  std::string ReadinessText() const;
  Status Decide(const std::string& body) const;

  const KeyHash key_;
  const AdminHooks hooks_;
};

}  // namespace tare::gateway
