// The service: HTTP requests in, OpenAI answers out. docs/SERVING.md lists the endpoints.
//
// Starts without an upstream: until SetUpstream, /health answers and everything that needs a model
// gets 503. After BeginDrain new work gets 503 while what runs goes on.
//
// Thread safety: all methods may be called from any thread; Handle does not block.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "gateway/api_keys.h"
#include "gateway/metrics.h"
#include "gateway/upstream.h"
#include "net/http_server.h"

namespace tare::gateway {

struct GatewayOptions {
  std::string version;
  std::optional<ApiKeys> keys;   // absent: open to all
  const Clock* clock = nullptr;  // null: CLOCK_MONOTONIC
};

class Gateway {
 public:
  explicit Gateway(GatewayOptions options);
  ~Gateway();

  void SetUpstream(std::shared_ptr<Upstream> upstream);
  void BeginDrain();
  Metrics& metrics() { return *metrics_; }

  void Handle(net::HttpRequest request, std::shared_ptr<net::ResponseWriter> writer);

 private:
  struct Route;
  struct Call;  // a request with what every handler needs
  static const Route* FindRoute(std::string_view path);

  void Chat(Call call);
  void Completion(Call call);
  void Models(Call call);
  void Model(Call call);
  void Tokenize(Call call);
  void Detokenize(Call call);
  void Health(Call call);
  void Ready(Call call);
  void MetricsText(Call call);
  void Version(Call call);

  void StartChat(Call call, api::ChatRequest request, bool chat);
  // The upstream when it takes work; else why not.
  Result<std::shared_ptr<Upstream>> Working() const;
  bool Allowed(const net::HttpRequest& request) const;
  std::string NewId();
  void Answer(const Call& call, int status, std::string body,
              const char* content_type = "application/json");
  void Answer(const Call& call, const Error& error);

  const GatewayOptions options_;
  const Clock* const clock_;
  const std::shared_ptr<Metrics> metrics_;
  const std::string id_prefix_;
  std::atomic<std::uint64_t> next_id_{0};
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<Upstream> upstream_;
};

}  // namespace tare::gateway
