// What the gateway counts, and how it is shown to Prometheus. docs/SERVING.md lists the names.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat.h"
#include "base/types.h"
#include "engine/adapter_store.h"
#include "engine/embedder.h"
#include "engine/stats.h"
#include "gateway/quota.h"
#include "gateway/router.h"
#include "net/http_server.h"

namespace prometheus {
struct MetricFamily;
}

namespace tare::gateway {

class Metrics {
 public:
  using Families = std::vector<prometheus::MetricFamily>;
  // Adds families when asked; called for every scrape.
  using Source = std::function<void(Families&)>;

  Metrics();
  ~Metrics();

  // One answered request: `endpoint` is a known path, `status` what the client got (499: it left).
  void CountRequest(std::string_view endpoint, int status, Nanos duration);
  void ObserveFirstToken(Nanos since_received);
  void ObserveGap(Nanos gap);
  void ObserveWhole(Nanos since_received);
  void AddTokens(const api::Usage& usage);
  // `outcome`: applied, refused.
  void CountReload(std::string_view outcome);
  void AddSource(Source source);

  // The text format of Prometheus, version 0.0.4.
  std::string Text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// `model`: a label of every metric where a process runs several; empty: none.
void AppendEngineFamilies(const engine::EngineStats& stats, Metrics::Families& out,
                          const std::string& model = "");
void AppendAdapterFamilies(const engine::AdapterStats& stats, Metrics::Families& out,
                           const std::string& model = "");
void AppendEmbedderFamilies(const engine::EmbedderStats& stats, Metrics::Families& out,
                            const std::string& model = "");
void AppendUpstreamFamilies(const std::vector<UpstreamStats>& upstreams, Metrics::Families& out);
void AppendRouteFamilies(const std::vector<RouteStats>& routes, Metrics::Families& out);
// Use, cost and refusals by tenant.
void AppendTenantFamilies(const QuotaLedger& ledger, Metrics::Families& out);
void AppendLogFamilies(std::uint64_t lines_dropped, Metrics::Families& out);
void AppendShadowFamilies(const std::vector<ShadowReport>& shadows, Metrics::Families& out);
void AppendReadinessFamilies(const std::vector<ReadinessReport>& reports, Metrics::Families& out);
void AppendRolloutFamilies(const std::vector<RolloutReport>& rollouts, Metrics::Families& out);
void AppendServerFamilies(const net::HttpServerStats& stats, Metrics::Families& out);

}  // namespace tare::gateway
