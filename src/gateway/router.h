// Models served by several upstreams: picks one, retries, fails over, breaks circuits.
//
// A model's route lists targets; balance.h says in which order a request tries them. It goes to the
// first whose breaker lets it and whose limit has room; when all are busy it waits in the route's
// waiting_room.h. Failures before the first token reaches the client are handled by
// retry_policy.h; a request whose client wants a whole answer can start over at any time, as
// nothing has been sent. After tokens went out nothing is retried: the answer goes on elsewhere
// where the route and a target allow it (the new target gets what was written so far as the
// answer's beginning), else it ends with an error, so a truncated answer is never a success. A
// client that leaves cancels its attempt at once.
//
// Reconfigure switches to other upstreams and routes at once: what runs stays with what it began
// with, upstreams that did not change keep their connections, breakers and counts.
//
// One thread runs every decision and all remote I/O; local engines report to it. It is the router's
// own, or an I/O thread of the HTTP server (net::HttpServer::Host): then a request takes no hop
// between threads.
//
// Thread safety: see Upstream; Stats may be called from any thread. Destruction fails what still
// runs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/balance.h"
#include "gateway/circuit_breaker.h"
#include "gateway/readiness.h"
#include "gateway/remote_origin.h"
#include "gateway/retry_policy.h"
#include "gateway/rollout.h"
#include "gateway/shadow.h"
#include "gateway/upstream.h"
#include "gateway/upstream_watch.h"
#include "gateway/waiting_room.h"

namespace tare::gateway {

struct UpstreamConfig {
  RemoteOptions remote;             // its name is the upstream's
  std::shared_ptr<Upstream> local;  // set: a local engine instead of a server
  int max_concurrent = 256;         // requests at a time
  double weight = 1;                // of its targets that give none; relative speed
  bool assistant_prefix = false;    // it can go on from a part of an answer
  ProbeOptions probe;               // of a remote one
  ScrapeOptions scrape;
};

struct TargetConfig {
  std::string upstream;
  std::string model;                      // the upstream's name for it
  int max_model_len = 0;                  // tokens; 0: unknown
  double weight = 0;                      // 0: the upstream's
  bool interactive = true, batch = true;  // tiers it is meant for
};

struct RouteConfig {
  std::string model;  // what clients ask for
  std::vector<std::string> aliases;
  std::vector<TargetConfig> targets;  // best first
  Balance balance = Balance::kOrdered;
  bool sticky = false;  // weighted: a user keeps a target
  // A stream that is cut goes on at a target that can do so, its own at last.
  bool continue_cut_streams = false;
  QueueOptions queue;
  std::optional<RolloutPolicy> rollout;  // with the target that is tried out:
  TargetConfig canary;
  std::optional<ShadowPolicy> shadow;  // with the target that gets copies:
  TargetConfig shadow_target;
};

struct RouterConfig {
  std::vector<UpstreamConfig> upstreams;
  std::vector<RouteConfig> routes;
  RetryPolicy retry;
  CircuitBreaker::Options breaker;
  // How soon new canaries and A/B arms are ready is told here; null: nobody asks.
  std::shared_ptr<Readiness> readiness;
  Nanos asked{};  // when this configuration was asked for; zero: now
};

struct UpstreamStats {
  std::string name;
  std::uint64_t attempts = 0;
  std::uint64_t successes = 0;
  std::uint64_t failures = 0;    // that count against its health
  std::uint64_t rejections = 0;  // 4xx: the request's fault, rate limits
  std::uint64_t retries = 0;     // attempts after the first on this upstream
  std::uint64_t continued = 0;   // streams cut elsewhere that went on here, to their end
  int running = 0;
  bool breaker_open = false;
  std::int64_t outstanding_tokens = 0;  // promised to what runs
  WatchStats watch;
};

struct RouteStats {
  std::string model;
  int waiting_interactive = 0;
  int waiting_batch = 0;
  std::uint64_t refused = 0;    // the queue was full
  std::uint64_t timed_out = 0;  // in the queue
  std::uint64_t shed = 0;       // came faster than the model answers
  bool wants_more_servers = false;
};

class Router final : public Upstream {
 public:
  // Refuses routes that name unknown upstreams and models named twice.
  // `hosted`: somebody else runs loop(), until nothing calls the router any more.
  static Result<std::shared_ptr<Router>> Create(RouterConfig config, bool hosted = false);
  ~Router() override;
  net::EventLoop* loop();
  // All or nothing: on an error the old configuration stays.
  Status Reconfigure(RouterConfig config);

  std::vector<ModelInfo> Models() const override;
  Result<std::unique_ptr<ChatCall>> Chat(api::ChatRequest request,
                                         std::shared_ptr<ChatSink> sink) override;
  bool Ready() const override { return true; }
  bool Feedback(const std::string& request_id, int label) override;
  void LoadAdapter(api::LoadAdapterRequest request, std::function<void(Status)> done) override;
  Status UnloadAdapter(const std::string& name) override;
  std::string AdapterBase(const std::string& model) const override;
  Result<std::vector<TokenId>> Tokenize(const api::ChatRequest& request,
                                        bool add_special) const override;
  Result<std::string> Detokenize(const std::string& model,
                                 std::span<const TokenId> tokens) const override;
  std::vector<UpstreamStats> Stats() const;
  std::vector<RouteStats> Routes() const;
  // Of the routes that have shadow traffic.
  std::vector<ShadowReport> Shadows() const;
  // The roll-outs of the routes that have one.
  std::vector<std::shared_ptr<Rollout>> Rollouts() const;

  struct Impl;

 private:
  explicit Router(std::shared_ptr<Impl> impl);
  const std::shared_ptr<Impl> impl_;
};

}  // namespace tare::gateway
