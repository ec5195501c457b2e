#include "gateway/admin.h"

#include <openssl/crypto.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/wire_error.h"

namespace tare::gateway {

namespace {

using nlohmann::json;

constexpr double kNanoPerUsd = 1e9;  // divided by, it gives the nearest number to what is meant

void Send(net::ResponseWriter& writer, int status, std::string body) {
  writer.Send(status, {{"Content-Type", "application/json"}}, std::move(body));
}

void Send(net::ResponseWriter& writer, const Error& error, int status) {
  Send(writer, status, api::ErrorBody(status, error.message));
}

json OrNull(const std::optional<std::int64_t>& value) { return value ? json(*value) : json(); }

std::string Dump(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

Admin::Admin(KeyHash key, AdminHooks hooks) : key_(key), hooks_(std::move(hooks)) {}

bool Admin::Allowed(const net::HttpRequest& request) const {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string* header = request.Header("Authorization");
  if (header == nullptr || header->size() <= kScheme.size()) return false;
  const std::string_view value(*header);
  if (!net::EqualsIgnoreCase(value.substr(0, kScheme.size()), kScheme)) return false;
  const KeyHash given = HashKey(value.substr(kScheme.size()));
  return CRYPTO_memcmp(given.data(), key_.data(), key_.size()) == 0;
}

void Admin::Handle(net::HttpRequest request, std::shared_ptr<net::ResponseWriter> writer) const {
  if (!Allowed(request)) {
    Send(*writer, {ErrorKind::kInvalidArgument, "this port needs the admin key", "", ""}, 401);
    return;
  }
  const std::string_view path = request.path();
  const bool get = request.method == "GET";
  if (path == "/admin/usage" && get) {
    const std::size_t at = request.target.find('?');
    const auto text = Usage(at == std::string::npos ? "" : request.target.substr(at + 1));
    if (text) {
      Send(*writer, 200, *text);
    } else {
      Send(*writer, text.error(), api::HttpStatus(text.error()));
    }
  } else if (path == "/admin/upstreams" && get) {
    Send(*writer, 200, Upstreams());
  } else if (path == "/admin/startup" && get) {
    Send(*writer, 200, Startups());
  } else if (path == "/admin/readiness" && get) {
    Send(*writer, 200, ReadinessText());
  } else if (path == "/admin/rollouts" && get) {
    Send(*writer, 200, Rollouts());
  } else if (path == "/admin/rollouts" && request.method == "POST") {
    if (const Status decided = Decide(request.body); decided) {
      Send(*writer, 200, Rollouts());
    } else {
      Send(*writer, decided.error(), api::HttpStatus(decided.error()));
    }
  } else if (path == "/admin/reload" && request.method == "POST") {
    hooks_.reload([writer](Status status) {
      if (status) {
        Send(*writer, 200, R"({"reloaded":true})");
      } else {
        Send(*writer, status.error(), 422);
      }
    });
  } else {
    Send(*writer,
         {ErrorKind::kNotFound,
          "there is GET /admin/usage, GET /admin/upstreams, GET /admin/startup, GET and POST "
          "/admin/rollouts, GET /admin/readiness, and POST /admin/reload",
          "", ""},
         404);
  }
}

Result<std::string> Admin::Usage(std::string_view query) const {
  constexpr std::string_view kMonth = "month=";
  const std::string_view month =
      query.substr(0, kMonth.size()) == kMonth ? query.substr(kMonth.size()) : "";
  const std::shared_ptr<QuotaLedger> ledger = hooks_.ledger();
  TARE_TRY(const std::vector<store::UsageRow> used, ledger->TotalUsage());
  TARE_TRY(const std::vector<store::QuotaRow> quotas, ledger->TotalQuotas());
  json usage = json::array();
  for (const store::UsageRow& row : used) {
    const std::string name = MonthName(row.month);
    if (!month.empty() && month != name) continue;
    usage.push_back({{"month", name},
                     {"tenant", row.tenant},
                     {"model", row.model},
                     {"requests", row.requests},
                     {"prompt_tokens", row.prompt_tokens},
                     {"cached_tokens", row.cached_tokens},
                     {"output_tokens", row.output_tokens},
                     {"cost_usd", static_cast<double>(row.nano_usd) / kNanoPerUsd}});
  }
  const std::shared_ptr<const Access> access = hooks_.access();
  json tenants = json::array();
  for (const store::QuotaRow& row : quotas) {
    const TenantLimits limits = access->LimitsOf(row.tenant);
    json budget;
    if (limits.nano_usd_per_month) {
      budget = static_cast<double>(*limits.nano_usd_per_month) / kNanoPerUsd;
    }
    tenants.push_back({{"tenant", row.tenant},
                       {"minute_requests", row.minute_requests},
                       {"requests_per_minute", OrNull(limits.requests_per_minute)},
                       {"minute_tokens", row.minute_tokens},
                       {"tokens_per_minute", OrNull(limits.tokens_per_minute)},
                       {"month", MonthName(row.month)},
                       {"month_usd", static_cast<double>(row.month_nano_usd) / kNanoPerUsd},
                       {"usd_per_month", budget}});
  }
  return Dump({{"usage", usage}, {"tenants", tenants}});
}

std::string Admin::Rollouts() const {
  // JSON has no infinity: an absent bound is null.
  const auto bound = [](double value) { return std::isfinite(value) ? json(value) : json(); };
  json rollouts = json::array();
  for (const std::shared_ptr<Rollout>& rollout : hooks_.rollouts()) {
    const RolloutReport report = rollout->Report();
    json gates = json::array();
    for (const GateReport& gate : report.gates) {
      gates.push_back({{"name", gate.name},
                       {"verdict", ToString(gate.verdict)},
                       {"baseline", {bound(gate.baseline_low), bound(gate.baseline_high)}},
                       {"canary", {bound(gate.canary_low), bound(gate.canary_high)}}});
    }
    rollouts.push_back({{"model", report.model},
                        {"state", ToString(report.state)},
                        {"because", report.because},
                        {"running_s", report.running_s},
                        {"baseline_samples", report.baseline_samples},
                        {"canary_samples", report.canary_samples},
                        {"gates", gates}});
  }
  json shadows = json::array();
  for (const ShadowReport& shadow : hooks_.shadows()) {
    const std::uint64_t pairs = shadow.same + shadow.different;
    const auto side = [&](const ShadowReport::Side& sums) -> json {
      if (pairs == 0) return nullptr;
      const auto count = static_cast<double>(pairs);
      return {{"mean_ttft_s", sums.ttft_s / count},
              {"mean_e2e_s", sums.e2e_s / count},
              {"mean_tokens", static_cast<double>(sums.tokens) / count}};
    };
    shadows.push_back({{"model", shadow.model},
                       {"answered", shadow.answered},
                       {"failed", shadow.failed},
                       {"skipped", shadow.skipped},
                       {"cancelled", shadow.cancelled},
                       {"running", shadow.running},
                       {"same", shadow.same},
                       {"different", shadow.different},
                       {"request", side(shadow.request)},
                       {"copy", side(shadow.copy)}});
  }
  return Dump({{"rollouts", rollouts}, {"shadows", shadows}});
}

std::string Admin::ReadinessText() const {
  json channels = json::array();
  for (const ReadinessReport& report : hooks_.readiness()) {
    json last = json::array();
    for (const ReadinessReport::Event& event : report.last) {
      last.push_back({{"at", event.at},
                      {"seconds", event.seconds},
                      {"ready", event.ready},
                      {"what", event.what}});
    }
    const bool some = report.events > 0;
    const double attained =
        some ? static_cast<double>(report.met) / static_cast<double>(report.events) : 0;
    channels.push_back({{"channel", ToString(report.channel)},
                        {"target_s", ToSeconds(ReadinessTarget(report.channel))},
                        {"events", report.events},
                        {"met", report.met},
                        {"attainment", some ? json(attained) : json()},
                        {"median_s", report.median_s},
                        {"worst_s", report.worst_s},
                        {"last", last}});
  }
  return Dump({{"channels", channels}});
}

Status Admin::Decide(const std::string& body) const {
  const json request = json::parse(body, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* key) -> std::string {
    if (!request.is_object()) return {};
    const auto found = request.find(key);
    return found != request.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const std::string model = text("model"), state = text("state");
  RolloutState decided = RolloutState::kRolledBack;
  if (state == ToString(RolloutState::kPromoted)) {
    decided = RolloutState::kPromoted;
  } else if (state != ToString(RolloutState::kRolledBack)) {
    return FailParam("state", "send a model, and as state promoted or rolled_back");
  }
  for (const std::shared_ptr<Rollout>& rollout : hooks_.rollouts()) {
    if (rollout->Report().model != model) continue;
    rollout->Decide(decided, "decided by the operator");
    return {};
  }
  return Fail(ErrorKind::kNotFound, "no roll-out of a model '{}' is configured", model);
}

std::string Admin::Upstreams() const {
  json upstreams = json::array();
  for (const UpstreamStats& stats : hooks_.upstreams()) {
    const WatchStats& watch = stats.watch;
    json health, metrics;
    if (watch.probed) {
      health = {{"state", watch.down ? "down" : "up"},
                {"probes_well", watch.probes_well},
                {"probes_failed", watch.probes_failed},
                {"last_failure", watch.last_failure}};
    }
    if (watch.scraped) {
      const auto told = [&](double value) { return value >= 0 ? json(value) : json(); };
      metrics = {
          {"stale", watch.scrape_stale},      {"read", watch.scrapes_read},
          {"failed", watch.scrapes_failed},   {"foreign_requests", watch.foreign_requests},
          {"kv_usage", told(watch.kv_usage)}, {"kv_fragmentation", told(watch.kv_fragmentation)}};
    }
    upstreams.push_back({{"name", stats.name},
                         {"running", stats.running},
                         {"outstanding_tokens", stats.outstanding_tokens},
                         {"attempts", stats.attempts},
                         {"successes", stats.successes},
                         {"failures", stats.failures},
                         {"rejections", stats.rejections},
                         {"retries", stats.retries},
                         {"continued", stats.continued},
                         {"breaker_open", stats.breaker_open},
                         {"health", health},
                         {"metrics", metrics}});
  }
  json models = json::array();
  for (const RouteStats& stats : hooks_.routes()) {
    models.push_back({{"model", stats.model},
                      {"waiting_interactive", stats.waiting_interactive},
                      {"waiting_batch", stats.waiting_batch},
                      {"refused", stats.refused},
                      {"timed_out", stats.timed_out},
                      {"shed", stats.shed},
                      {"wants_more_servers", stats.wants_more_servers}});
  }
  return Dump({{"upstreams", upstreams}, {"models", models}});
}

std::string Admin::Startups() const {
  json models = json::array();
  for (const auto& [model, times] : hooks_.startups()) {
    models.push_back({{"model", model},
                      {"stages",
                       {{{"stage", "map_weights"}, {"seconds", ToSeconds(times.map_weights)}},
                        {{"stage", "load_weights"}, {"seconds", ToSeconds(times.load_weights)}},
                        {{"stage", "load_text"}, {"seconds", ToSeconds(times.load_text)}},
                        {{"stage", "touch_pages"}, {"seconds", ToSeconds(times.touch_pages)}},
                        {{"stage", "warm_kernels"}, {"seconds", ToSeconds(times.warm_kernels)}}}},
                      {"total_s", ToSeconds(times.total)},
                      {"weights_from_cache", times.weights_from_cache},
                      {"touched_kv_bytes", times.touched_kv_bytes},
                      {"huge_kv_bytes", times.huge_kv_bytes}});
  }
  return Dump({{"models", models}});
}

}  // namespace tare::gateway
