#include "gateway/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

namespace tare::gateway {

namespace {

using prometheus::ClientMetric;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;

// vLLM's bounds for the first token; gaps finer at the short end, where CPU decode of small models
// lives.
const Histogram::BucketBoundaries kFirstTokenBounds = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0,   2.5,   5.0,  7.5,  10,   20,   40,   80,  160,  640, 2560};
const Histogram::BucketBoundaries kGapBounds = {0.001, 0.0025, 0.005, 0.0075, 0.01,  0.015, 0.02,
                                                0.025, 0.03,   0.04,  0.05,   0.075, 0.1,   0.15,
                                                0.2,   0.3,    0.5,   1.0,    2.5,   10};
const Histogram::BucketBoundaries kWholeBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,  2.5,
                                                  5,     10,   20,    30,   60,  120,  300, 900};

struct Sample {
  double value = 0;
  std::vector<ClientMetric::Label> labels;
};

void Append(Metrics::Families& out, MetricType type, const char* name, const char* help,
            std::vector<Sample> samples) {
  MetricFamily& family = out.emplace_back();
  family.name = name;
  family.help = help;
  family.type = type;
  for (Sample& sample : samples) {
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = std::move(sample.labels);
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = sample.value;
  }
}

void Gauge(Metrics::Families& out, const char* name, const char* help, double value) {
  Append(out, MetricType::Gauge, name, help, {{value, {}}});
}

void Counter(Metrics::Families& out, const char* name, const char* help, std::uint64_t value) {
  Append(out, MetricType::Counter, name, help, {{static_cast<double>(value), {}}});
}

void AppendStepSeconds(const engine::EngineStats& stats, Metrics::Families& out) {
  MetricFamily& family = out.emplace_back();
  family.name = "tare_engine_step_seconds";
  family.help = "Duration of engine steps (one forward pass over a batch)";
  family.type = MetricType::Histogram;
  auto& histogram = family.metric.emplace_back().histogram;
  histogram.sample_count = stats.steps;
  histogram.sample_sum = stats.step_seconds;
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < stats.step_seconds_histogram.size(); ++i) {
    below += stats.step_seconds_histogram[i];
    const double bound = i < engine::kStepSecondsBounds.size()
                             ? engine::kStepSecondsBounds[i]
                             : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({below, bound});
  }
}

// Sources that speak of the same thing (two models) make one family, as the format wants it.
void JoinFamilies(Metrics::Families& families) {
  std::map<std::string, std::size_t> first;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < families.size(); ++i) {
    const auto [known, fresh] = first.emplace(families[i].name, kept);
    if (fresh) {
      if (kept != i) families[kept] = std::move(families[i]);
      ++kept;
      continue;
    }
    auto& metrics = families[known->second].metric;
    std::move(families[i].metric.begin(), families[i].metric.end(), std::back_inserter(metrics));
  }
  families.resize(kept);
}

void AppendExpertFamilies(const engine::ExpertStats& experts, Metrics::Families& out) {
  if (experts.tokens.empty()) return;
  std::vector<Sample> tokens, imbalance, entropy;
  for (std::size_t i = 0; i < experts.tokens.size(); ++i) {
    tokens.push_back({static_cast<double>(experts.tokens[i]), {{"expert", std::to_string(i)}}});
  }
  for (std::size_t i = 0; i < experts.layers.size(); ++i) {
    const ClientMetric::Label layer{
        "layer", std::to_string(static_cast<std::size_t>(experts.first_layer) + i)};
    imbalance.push_back({experts.layers[i].imbalance, {layer}});
    entropy.push_back({experts.layers[i].entropy, {layer}});
  }
  Append(out, MetricType::Counter, "tare_expert_tokens_total",
         "Tokens each expert computed, all layers together", std::move(tokens));
  Append(out, MetricType::Gauge, "tare_expert_imbalance_ratio",
         "Tokens of a layer's busiest expert over the mean since the start: 1 is even",
         std::move(imbalance));
  Append(out, MetricType::Gauge, "tare_expert_entropy_ratio",
         "Entropy of a layer's shares of tokens over that of even shares: 1 is even",
         std::move(entropy));
  Gauge(out, "tare_expert_touched_ratio",
        "Share of the routed experts whose weights the last step read", experts.touched_share);
  Counter(out, "tare_experts_touched_total",
          "Experts whose weights were read, over steps and layers", experts.touched);
  Counter(out, "tare_experts_present_total", "Experts there were, over steps and layers",
          experts.present);
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests =
      prometheus::BuildCounter()
          .Name("tare_requests_total")
          .Help("HTTP requests answered, by endpoint and status code (499: the client left)")
          .Register(registry);
  prometheus::Family<Histogram>& durations =
      prometheus::BuildHistogram()
          .Name("tare_http_request_seconds")
          .Help("From a request's last byte to its answer's last, by endpoint")
          .Register(registry);
  Histogram& first_token = prometheus::BuildHistogram()
                               .Name("tare_time_to_first_token_seconds")
                               .Help("From a request's last byte to its first token")
                               .Register(registry)
                               .Add({}, kFirstTokenBounds);
  Histogram& gap = prometheus::BuildHistogram()
                       .Name("tare_inter_token_latency_seconds")
                       .Help("Gaps between the chunks of an answer that carry tokens")
                       .Register(registry)
                       .Add({}, kGapBounds);
  Histogram& whole = prometheus::BuildHistogram()
                         .Name("tare_e2e_request_latency_seconds")
                         .Help("From a request's last byte to its last token, complete answers")
                         .Register(registry)
                         .Add({}, kWholeBounds);
  prometheus::Family<prometheus::Counter>& tokens =
      prometheus::BuildCounter()
          .Name("tare_tokens_total")
          .Help("Tokens of complete answers: read (prompt), of them cached, and written (output)")
          .Register(registry);
  prometheus::Counter& prompt_tokens = tokens.Add({{"kind", "prompt"}});
  prometheus::Counter& cached_tokens = tokens.Add({{"kind", "cached"}});
  prometheus::Counter& output_tokens = tokens.Add({{"kind", "output"}});

  prometheus::Family<prometheus::Counter>& reloads =
      prometheus::BuildCounter()
          .Name("tare_config_reloads_total")
          .Help("Times the configuration was read again, by outcome (applied, refused)")
          .Register(registry);

  // The registry's answers to labels it was asked before: finding them there costs microseconds.
  struct Endpoint {
    std::string name;
    Histogram* durations = nullptr;
    std::vector<std::pair<int, prometheus::Counter*>> by_status;
  };

  mutable std::mutex mutex;  // guards the rest
  std::vector<Endpoint> endpoints;
  std::vector<Source> sources;

  Endpoint& Find(std::string_view name) {
    for (Endpoint& known : endpoints) {
      if (known.name == name) return known;
    }
    const std::string label(name);
    return endpoints.emplace_back(
        Endpoint{label, &durations.Add({{"endpoint", label}}, kWholeBounds), {}});
  }
  prometheus::Counter& Requests(Endpoint& endpoint, int status) {
    for (const auto& [known, counter] : endpoint.by_status) {
      if (known == status) return *counter;
    }
    prometheus::Counter& counter =
        requests.Add({{"endpoint", endpoint.name}, {"code", std::to_string(status)}});
    endpoint.by_status.emplace_back(status, &counter);
    return counter;
  }
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::CountRequest(std::string_view endpoint, int status, Nanos duration) {
  std::lock_guard lock(impl_->mutex);
  Impl::Endpoint& known = impl_->Find(endpoint);
  impl_->Requests(known, status).Increment();
  known.durations->Observe(ToSeconds(duration));
}
void Metrics::ObserveFirstToken(Nanos since_received) {
  impl_->first_token.Observe(ToSeconds(since_received));
}
void Metrics::ObserveGap(Nanos gap) { impl_->gap.Observe(ToSeconds(gap)); }
void Metrics::ObserveWhole(Nanos since_received) {
  impl_->whole.Observe(ToSeconds(since_received));
}
void Metrics::AddTokens(const api::Usage& usage) {
  impl_->prompt_tokens.Increment(usage.prompt_tokens);
  impl_->cached_tokens.Increment(usage.cached_tokens);
  impl_->output_tokens.Increment(usage.completion_tokens);
}
void Metrics::CountReload(std::string_view outcome) {
  impl_->reloads.Add({{"outcome", std::string(outcome)}}).Increment();
}
void Metrics::AddSource(Source source) {
  std::lock_guard lock(impl_->mutex);
  impl_->sources.push_back(std::move(source));
}

std::string Metrics::Text() const {
  Families families = impl_->registry.Collect();
  {
    std::lock_guard lock(impl_->mutex);
    for (const Source& source : impl_->sources) source(families);
  }
  JoinFamilies(families);
  return prometheus::TextSerializer().Serialize(families);
}

namespace {

// Labels the metrics from `begin` on where a process runs several models.
void LabelModel(Metrics::Families& out, std::size_t begin, const std::string& model) {
  if (model.empty()) return;
  for (std::size_t i = begin; i < out.size(); ++i) {
    for (ClientMetric& metric : out[i].metric) metric.label.push_back({"model", model});
  }
}

}  // namespace

void AppendEngineFamilies(const engine::EngineStats& stats, Metrics::Families& out,
                          const std::string& model) {
  const std::size_t begin = out.size();
  Gauge(out, "tare_requests_running", "Sequences taking part in steps", stats.running);
  Gauge(out, "tare_requests_waiting", "Sequences not admitted yet, or preempted", stats.waiting);
  const double total = stats.pages_total;
  const double used = stats.pages_used;
  const double cached = stats.pages_cached;
  Append(out, MetricType::Gauge, "tare_kv_pages",
         "KV pages by state: of running sequences, kept for the prefix cache, free",
         {{used, {{"state", "used"}}},
          {cached, {{"state", "cached"}}},
          {total - used - cached, {{"state", "free"}}}});
  Gauge(out, "tare_kv_page_bytes", "Size of one KV page", static_cast<double>(stats.page_bytes));
  Gauge(out, "tare_kv_fragmentation_ratio",
        "Free pages in partly used slabs, of the pages held from the operating system",
        stats.stranded_share);
  Gauge(out, "tare_kv_unused_slot_ratio", "Token slots without a token, of those in used pages",
        stats.unused_slot_share);
  Append(out, MetricType::Counter, "tare_engine_requests_total",
         "Requests that left the engine, by outcome",
         {{static_cast<double>(stats.requests_finished), {{"outcome", "finished"}}},
          {static_cast<double>(stats.requests_cancelled), {{"outcome", "cancelled"}}},
          {static_cast<double>(stats.requests_failed), {{"outcome", "failed"}}}});
  Counter(out, "tare_prompt_tokens_total", "Prompt tokens of accepted requests",
          stats.prompt_tokens);
  Counter(out, "tare_generation_tokens_total", "Tokens sampled and kept", stats.generated_tokens);
  Counter(out, "tare_computed_tokens_total", "Rows computed: prefill, decode, recomputation",
          stats.computed_tokens);
  Counter(out, "tare_prefix_cache_queries_total", "Tokens looked up in the prefix cache",
          stats.prefix_queries);
  Counter(out, "tare_prefix_cache_hits_total", "Tokens found in the prefix cache",
          stats.prefix_hits);
  Counter(out, "tare_draft_turns_total", "Turns of a sequence that had drafts to verify",
          stats.draft_turns);
  Counter(out, "tare_drafted_tokens_total", "Drafts verified", stats.drafted_tokens);
  Counter(out, "tare_accepted_drafts_total",
          "Drafts that were right; each saves its sequence a step", stats.accepted_drafts);
  Gauge(out, "tare_draft_acceptance_ratio", "Drafts that were right, of those verified",
        stats.drafted_tokens > 0
            ? static_cast<double>(stats.accepted_drafts) / static_cast<double>(stats.drafted_tokens)
            : 0.0);
  Counter(out, "tare_preemptions_total", "Sequences pushed out for want of pages",
          stats.preemptions);
  Counter(out, "tare_kv_pages_moved_total", "Pages moved by compaction", stats.pages_moved);
  Append(out, MetricType::Counter, "tare_kv_upkeep_seconds_total",
         "Time steps spent on copying, moving and giving back pages", {{stats.upkeep_seconds, {}}});
  Gauge(out, "tare_kv_upkeep_longest_seconds", "The longest such time within one step",
        stats.longest_upkeep_seconds);
  AppendStepSeconds(stats, out);
  AppendExpertFamilies(stats.experts, out);
  const engine::StartupTimes& startup = stats.startup;
  Append(out, MetricType::Gauge, "tare_startup_seconds", "How long each stage of start-up took",
         {{ToSeconds(startup.map_weights), {{"stage", "map_weights"}}},
          {ToSeconds(startup.load_weights), {{"stage", "load_weights"}}},
          {ToSeconds(startup.load_text), {{"stage", "load_text"}}},
          {ToSeconds(startup.touch_pages), {{"stage", "touch_pages"}}},
          {ToSeconds(startup.warm_kernels), {{"stage", "warm_kernels"}}},
          {ToSeconds(startup.total), {{"stage", "total"}}}});
  Append(out, MetricType::Gauge, "tare_kv_touched_bytes",
         "KV memory touched at start-up, by the pages the system gave for it",
         {{static_cast<double>(startup.huge_kv_bytes), {{"pages", "huge"}}},
          {static_cast<double>(startup.touched_kv_bytes - startup.huge_kv_bytes),
           {{"pages", "small"}}}});
  LabelModel(out, begin, model);
}

void AppendAdapterFamilies(const engine::AdapterStats& stats, Metrics::Families& out,
                           const std::string& model) {
  const std::size_t begin = out.size();
  Append(out, MetricType::Gauge, "tare_lora_adapters",
         "Adapters in memory: by a name, or without one, kept by answers that still run",
         {{static_cast<double>(stats.loaded), {{"state", "loaded"}}},
          {static_cast<double>(stats.retiring), {{"state", "retiring"}}}});
  Append(out, MetricType::Gauge, "tare_lora_bytes", "Memory of adapters",
         {{static_cast<double>(stats.loaded_bytes), {{"state", "loaded"}}},
          {static_cast<double>(stats.retiring_bytes), {{"state", "retiring"}}}});
  Append(out, MetricType::Counter, "tare_lora_changes_total",
         "Adapters loaded or replaced, refused and unloaded",
         {{static_cast<double>(stats.loads), {{"kind", "load"}}},
          {static_cast<double>(stats.refused_loads), {{"kind", "refused"}}},
          {static_cast<double>(stats.unloads), {{"kind", "unload"}}}});
  Append(out, MetricType::Counter, "tare_lora_load_seconds_total",
         "Time it took to read and pack the adapters loaded", {{stats.load_seconds, {}}});
  LabelModel(out, begin, model);
}

void AppendEmbedderFamilies(const engine::EmbedderStats& stats, Metrics::Families& out,
                            const std::string& model) {
  const std::size_t begin = out.size();
  Gauge(out, "tare_embedding_requests_waiting", "Requests not all of whose vectors are computed",
        stats.waiting_requests);
  Gauge(out, "tare_embedding_inputs_waiting", "Inputs of these that are not computed yet",
        static_cast<double>(stats.waiting_inputs));
  Append(out, MetricType::Counter, "tare_embedding_requests_total",
         "Requests that left the embedder, by outcome",
         {{static_cast<double>(stats.requests_finished), {{"outcome", "finished"}}},
          {static_cast<double>(stats.requests_cancelled), {{"outcome", "cancelled"}}}});
  Counter(out, "tare_embedding_inputs_total", "Inputs computed", stats.inputs);
  Counter(out, "tare_embedding_tokens_total", "Tokens computed", stats.tokens);
  Counter(out, "tare_embedding_steps_total", "Steps", stats.steps);
  Append(out, MetricType::Counter, "tare_embedding_step_seconds_total", "Time spent in steps",
         {{stats.step_seconds, {}}});
  LabelModel(out, begin, model);
}

void AppendUpstreamFamilies(const std::vector<UpstreamStats>& upstreams, Metrics::Families& out) {
  std::vector<Sample> attempts, retries, continued, running, open, outstanding;
  std::vector<Sample> up, probes, scrapes, stale, foreign, kv_usage;
  for (const UpstreamStats& upstream : upstreams) {
    const ClientMetric::Label name{"upstream", upstream.name};
    const auto outcome = [&](const char* word, std::uint64_t count) {
      attempts.push_back({static_cast<double>(count), {name, {"outcome", word}}});
    };
    outcome("success", upstream.successes);
    outcome("failure", upstream.failures);
    outcome("rejected", upstream.rejections);
    retries.push_back({static_cast<double>(upstream.retries), {name}});
    continued.push_back({static_cast<double>(upstream.continued), {name}});
    running.push_back({static_cast<double>(upstream.running), {name}});
    open.push_back({upstream.breaker_open ? 1.0 : 0.0, {name}});
    outstanding.push_back({static_cast<double>(upstream.outstanding_tokens), {name}});
    const WatchStats& watch = upstream.watch;
    const auto count = [&](std::vector<Sample>& samples, const char* word, std::uint64_t value) {
      samples.push_back({static_cast<double>(value), {name, {"outcome", word}}});
    };
    if (watch.probed) {
      up.push_back({watch.down ? 0.0 : 1.0, {name}});
      count(probes, "well", watch.probes_well);
      count(probes, "failed", watch.probes_failed);
    }
    if (watch.scraped) {
      count(scrapes, "read", watch.scrapes_read);
      count(scrapes, "failed", watch.scrapes_failed);
      stale.push_back({watch.scrape_stale ? 1.0 : 0.0, {name}});
      if (watch.scrape_stale) continue;
      foreign.push_back({watch.foreign_requests, {name}});
      if (watch.kv_usage >= 0) kv_usage.push_back({watch.kv_usage, {name}});
    }
  }
  Append(out, MetricType::Counter, "tare_upstream_attempts_total",
         "Attempts at upstreams that ended, by outcome", std::move(attempts));
  Append(out, MetricType::Counter, "tare_upstream_retries_total",
         "Attempts repeated at the same upstream", std::move(retries));
  Append(out, MetricType::Counter, "tare_upstream_continued_total",
         "Streams cut elsewhere that went on here, to their end", std::move(continued));
  Append(out, MetricType::Gauge, "tare_upstream_running", "Attempts under way", std::move(running));
  Append(out, MetricType::Gauge, "tare_upstream_breaker_open",
         "1 while requests are kept away from a failing upstream", std::move(open));
  Append(out, MetricType::Gauge, "tare_upstream_outstanding_tokens",
         "Tokens still to be read and written for what runs, estimated", std::move(outstanding));
  if (!up.empty()) {
    Append(out, MetricType::Gauge, "tare_upstream_up",
           "0 while its probes keep requests away from an upstream", std::move(up));
    Append(out, MetricType::Counter, "tare_upstream_probes_total", "Health probes, by outcome",
           std::move(probes));
  }
  if (!scrapes.empty()) {
    Append(out, MetricType::Counter, "tare_upstream_scrapes_total",
           "Looks at an upstream's own metrics, by outcome", std::move(scrapes));
    Append(out, MetricType::Gauge, "tare_upstream_scrape_stale",
           "1 while nothing fresh is known of an upstream's own metrics", std::move(stale));
    Append(out, MetricType::Gauge, "tare_upstream_foreign_requests",
           "Requests an upstream has that this gateway did not send", std::move(foreign));
  }
  if (!kv_usage.empty()) {
    Append(out, MetricType::Gauge, "tare_upstream_kv_usage_ratio",
           "Share of an upstream's KV cache in use, by its own metrics", std::move(kv_usage));
  }
}

void AppendRouteFamilies(const std::vector<RouteStats>& routes, Metrics::Families& out) {
  std::vector<Sample> depth, turned_away, wanted;
  for (const RouteStats& route : routes) {
    const ClientMetric::Label model{"model", route.model};
    depth.push_back(
        {static_cast<double>(route.waiting_interactive), {model, {"tier", "interactive"}}});
    depth.push_back({static_cast<double>(route.waiting_batch), {model, {"tier", "batch"}}});
    turned_away.push_back({static_cast<double>(route.refused), {model, {"reason", "queue_full"}}});
    turned_away.push_back({static_cast<double>(route.timed_out), {model, {"reason", "timeout"}}});
    turned_away.push_back({static_cast<double>(route.shed), {model, {"reason", "shed"}}});
    wanted.push_back({route.wants_more_servers ? 1.0 : 0.0, {model}});
  }
  Append(out, MetricType::Gauge, "tare_queue_depth",
         "Requests waiting until an upstream has room, by model and tier", std::move(depth));
  Append(out, MetricType::Counter, "tare_queue_turned_away_total",
         "Requests that found the queue full or waited in vain", std::move(turned_away));
  Append(out, MetricType::Gauge, "tare_scale_out_wanted",
         "1 after the queue was past its threshold for its time", std::move(wanted));
}

void AppendRolloutFamilies(const std::vector<RolloutReport>& rollouts, Metrics::Families& out) {
  std::vector<Sample> states, samples;
  for (const RolloutReport& rollout : rollouts) {
    const ClientMetric::Label model{"model", rollout.model};
    for (const RolloutState state :
         {RolloutState::kRunning, RolloutState::kPromoted, RolloutState::kRolledBack}) {
      states.push_back({rollout.state == state ? 1.0 : 0.0, {model, {"state", ToString(state)}}});
    }
    samples.push_back(
        {static_cast<double>(rollout.baseline_samples), {model, {"arm", "baseline"}}});
    samples.push_back({static_cast<double>(rollout.canary_samples), {model, {"arm", "canary"}}});
  }
  Append(out, MetricType::Gauge, "tare_rollout_state", "1 for the state a roll-out is in",
         std::move(states));
  Append(out, MetricType::Counter, "tare_rollout_samples_total", "Answers a roll-out was judged by",
         std::move(samples));
}

void AppendShadowFamilies(const std::vector<ShadowReport>& shadows, Metrics::Families& out) {
  if (shadows.empty()) return;
  std::vector<Sample> copies, pairs, ttft, e2e, tokens;
  for (const ShadowReport& shadow : shadows) {
    const ClientMetric::Label model{"model", shadow.model};
    const auto outcome = [&](const char* word, std::uint64_t count) {
      copies.push_back({static_cast<double>(count), {model, {"outcome", word}}});
    };
    outcome("answered", shadow.answered);
    outcome("failed", shadow.failed);
    outcome("skipped", shadow.skipped);
    outcome("cancelled", shadow.cancelled);
    pairs.push_back({static_cast<double>(shadow.same), {model, {"text", "same"}}});
    pairs.push_back({static_cast<double>(shadow.different), {model, {"text", "different"}}});
    const auto side = [&](const char* word, const ShadowReport::Side& sums) {
      ttft.push_back({sums.ttft_s, {model, {"side", word}}});
      e2e.push_back({sums.e2e_s, {model, {"side", word}}});
      tokens.push_back({static_cast<double>(sums.tokens), {model, {"side", word}}});
    };
    side("request", shadow.request);
    side("copy", shadow.copy);
  }
  Append(out, MetricType::Counter, "tare_shadow_copies_total", "Copies of requests, by outcome",
         std::move(copies));
  Append(out, MetricType::Counter, "tare_shadow_pairs_total",
         "Requests answered by both sides, by whether they wrote the same", std::move(pairs));
  Append(out, MetricType::Counter, "tare_shadow_ttft_seconds_total",
         "Time to first token over these pairs, by side", std::move(ttft));
  Append(out, MetricType::Counter, "tare_shadow_e2e_seconds_total",
         "Time to the answer's end over these pairs, by side", std::move(e2e));
  Append(out, MetricType::Counter, "tare_shadow_output_tokens_total",
         "Tokens written over these pairs, by side", std::move(tokens));
}

void AppendReadinessFamilies(const std::vector<ReadinessReport>& reports, Metrics::Families& out) {
  std::vector<Sample> events, attained, worst;
  for (const ReadinessReport& report : reports) {
    if (report.events == 0) continue;
    const ClientMetric::Label channel{"channel", ToString(report.channel)};
    const auto count = static_cast<double>(report.events);
    events.push_back({count, {channel}});
    attained.push_back({static_cast<double>(report.met) / count, {channel}});
    worst.push_back({report.worst_s, {channel}});
  }
  if (events.empty()) return;
  Append(out, MetricType::Gauge, "tare_readiness_events",
         "Channels made ready that are remembered (canary, ab, reload)", std::move(events));
  Append(out, MetricType::Gauge, "tare_readiness_attainment_ratio",
         "Share of them ready within the target (3 min, 120 s, 8 s)", std::move(attained));
  Append(out, MetricType::Gauge, "tare_readiness_worst_seconds", "The longest of them",
         std::move(worst));
}

void AppendTenantFamilies(const QuotaLedger& ledger, Metrics::Families& out) {
  // Months are summed: counters must not go back.
  std::map<std::pair<std::string, std::string>, store::UsageRow> sums;
  for (const store::UsageRow& row : ledger.Usage()) {
    store::UsageRow& sum = sums[{row.tenant, row.model}];
    sum.requests += row.requests;
    sum.prompt_tokens += row.prompt_tokens;
    sum.cached_tokens += row.cached_tokens;
    sum.output_tokens += row.output_tokens;
    sum.nano_usd += row.nano_usd;
  }
  std::vector<Sample> requests, tokens, cost, refused;
  for (const auto& [who, sum] : sums) {
    const ClientMetric::Label tenant{"tenant", who.first};
    const ClientMetric::Label model{"model", who.second};
    requests.push_back({static_cast<double>(sum.requests), {tenant, model}});
    const auto kind = [&](const char* word, std::int64_t count) {
      tokens.push_back({static_cast<double>(count), {tenant, model, {"kind", word}}});
    };
    kind("prompt", sum.prompt_tokens);
    kind("cached", sum.cached_tokens);
    kind("output", sum.output_tokens);
    cost.push_back({static_cast<double>(sum.nano_usd) / 1e9, {tenant, model}});
  }
  for (const RefusalCount& refusal : ledger.Refusals()) {
    refused.push_back({static_cast<double>(refusal.count),
                       {{"tenant", refusal.tenant}, {"limit", refusal.limit}}});
  }
  Append(out, MetricType::Counter, "tare_tenant_requests_total", "Answers charged to a tenant",
         std::move(requests));
  Append(out, MetricType::Counter, "tare_tenant_tokens_total",
         "Tokens charged to a tenant; cached ones are part of prompt", std::move(tokens));
  Append(out, MetricType::Counter, "tare_tenant_cost_usd_total",
         "Cost by the prices of the configuration", std::move(cost));
  Append(out, MetricType::Counter, "tare_quota_refused_total",
         "Requests over a limit of their tenant", std::move(refused));
  Counter(out, "tare_quota_store_failures_total", "Writes of usage that failed",
          ledger.store_failures());
}

void AppendLogFamilies(std::uint64_t lines_dropped, Metrics::Families& out) {
  Counter(out, "tare_access_log_dropped_total", "Lines the access log could not write",
          lines_dropped);
}

void AppendServerFamilies(const net::HttpServerStats& stats, Metrics::Families& out) {
  Gauge(out, "tare_http_connections", "Open client connections", static_cast<double>(stats.open));
  Counter(out, "tare_http_connections_accepted_total", "Client connections accepted",
          stats.accepted);
  Counter(out, "tare_http_connections_refused_total", "Connections over the limit, turned away",
          stats.refused);
  Counter(out, "tare_http_bad_requests_total",
          "Requests malformed, too large or too slow, answered before any endpoint saw them",
          stats.bad_requests);
  Counter(out, "tare_http_slow_clients_total", "Streams cut because the client did not read",
          stats.slow_clients);
  Counter(out, "tare_http_disconnects_total", "Clients gone before their answer was complete",
          stats.disconnects);
}

}  // namespace tare::gateway
