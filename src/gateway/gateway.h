// The service: HTTP requests in, OpenAI answers out. docs/SERVING.md lists the endpoints.
//
// Starts without an upstream: until SetUpstream, /health answers and everything that needs a model
// gets 503. After BeginDrain new work gets 503 while what runs goes on.
//
// Thread safety: all methods may be called from any thread; Handle does not block. Calls that need
// a lease of a shared budget wait for it on a thread of the gateway's own.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "gateway/access.h"
#include "gateway/access_log.h"
#include "gateway/metrics.h"
#include "gateway/quota.h"
#include "gateway/task_queue.h"
#include "gateway/upstream.h"
#include "net/http_server.h"

namespace tare::gateway {

struct GatewayOptions {
  std::string version;
  std::shared_ptr<const Access> access;   // null: open to all
  const Clock* clock = nullptr;           // null: CLOCK_MONOTONIC
  std::shared_ptr<QuotaLedger> ledger;    // null: nothing is counted or limited
  std::shared_ptr<AccessLog> access_log;  // null: none
  // Absent: there is no operator but who is at the machine.
  std::optional<KeyHash> operator_key;
};

class Gateway {
 public:
  explicit Gateway(GatewayOptions options);
  ~Gateway();

  void SetUpstream(std::shared_ptr<Upstream> upstream);
  // Who may ask from now on, and where it is counted; what runs is not affected.
  void SetAccess(std::shared_ptr<const Access> access, std::shared_ptr<QuotaLedger> ledger);
  void BeginDrain();
  Metrics& metrics() { return *metrics_; }

  void Handle(net::HttpRequest request, std::shared_ptr<net::ResponseWriter> writer);

 private:
  struct Route;
  struct Call;  // a request with what every handler needs
  static const Route* FindRoute(std::string_view path);

  void Chat(Call call);
  void Completion(Call call);
  void Embeddings(Call call);
  void Models(Call call);
  void Model(Call call);
  void Tokenize(Call call);
  void Detokenize(Call call);
  void Feedback(Call call);
  void LoadAdapter(Call call);
  void UnloadAdapter(Call call);
  void Health(Call call);
  void Ready(Call call);
  void MetricsText(Call call);
  void Version(Call call);

  static api::Tier TierOf(const Call& call, const api::ChatRequest& request);
  void StartChat(Call call, api::ChatRequest request, bool chat);
  // The upstream when it takes work; else why not.
  Result<std::shared_ptr<Upstream>> Working() const;
  // Knows the request's key (left null when the service is open), or says why it may not go on.
  Status Authenticate(Call& call) const;
  // Whether the caller may change what is served: by the operator's key where there is one; else,
  // where nobody has a key, from this machine.
  Status CheckOperator(const Call& call) const;
  std::string NewId();
  // Where answered requests are counted and logged; outlives the gateway with whoever answers late.
  struct Books {
    std::shared_ptr<Metrics> metrics;
    std::shared_ptr<AccessLog> access_log;
    const Clock* clock = nullptr;
    void Enter(const Call& call, int status, const std::string& error) const;
    void Answer(const Call& call, int status, std::string body, const char* content_type) const;
    void Answer(const Call& call, const Error& error, Nanos retry_after) const;
  };
  // Counts and logs a request that is answered.
  void Finish(const Call& call, int status, const std::string& error = "");
  // Answers a call whose share of its tenant's quota is held, or was refused.
  void StartReserved(Call call, api::ChatRequest request, bool chat, QuotaLedger::Held held);
  void Answer(const Call& call, int status, std::string body,
              const char* content_type = "application/json");
  void Answer(const Call& call, const Error& error, Nanos retry_after = {});

  const GatewayOptions options_;
  const Clock* const clock_;
  const std::shared_ptr<Metrics> metrics_;
  const Books books_;
  const std::string id_prefix_;
  std::atomic<std::uint64_t> next_id_{0};
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;  // guards the rest
  std::shared_ptr<Upstream> upstream_;
  std::shared_ptr<const Access> access_;
  std::shared_ptr<QuotaLedger> ledger_;
  TaskQueue leases_;  // calls that wait for a pool; last: its tasks use the others
};

}  // namespace tare::gateway
