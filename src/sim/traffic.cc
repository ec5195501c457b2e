#include "sim/traffic.h"

#include <algorithm>
#include <cmath>

#include "load/random.h"

namespace tare::sim {
namespace {

constexpr std::uint64_t kClassStream = 0xc1a55;
constexpr std::uint64_t kPrefixStream = 0x9ef1;
constexpr int kMostTokens = 10'000'000;
// Log-normal lengths are cut here, standard deviations above the median: one in three million.
constexpr double kMostDeviations = 5;

// A log-normal length with the given mean; `normal` is standard.
int DrawLength(double mean, double cv, double normal) {
  if (cv <= 0) return static_cast<int>(mean);
  const double variance = std::log(1 + cv * cv);
  const double value =
      mean * std::exp(std::sqrt(variance) * std::min(normal, kMostDeviations) - variance / 2);
  return static_cast<int>(std::clamp(std::round(value), 1.0, double{kMostTokens}));
}

int Cut(int tokens, int limit) { return std::max(1, limit > 0 ? std::min(tokens, limit) : tokens); }

}  // namespace

Result<Traffic> Traffic::Create(const TrafficSpec& spec) {
  TARE_RETURN_IF_ERROR(load::CheckArrivals(spec.arrival));
  Traffic traffic;
  traffic.spec_ = spec;
  if (spec.arrival.kind == load::ArrivalSpec::Kind::kTrace) {
    traffic.trace_ = spec.trace;
    if (traffic.trace_ == nullptr) {
      TARE_TRY(load::Trace trace, load::LoadTrace(spec.arrival.trace));
      traffic.trace_ = std::make_shared<const load::Trace>(std::move(trace));
    }
    // After the last request the next round begins a mean gap later.
    const double rate = traffic.trace_->mean_rate();
    const double gap = rate > 0 ? 1 / rate : 1;
    traffic.period_ = traffic.trace_->requests.back().at + FromSeconds(gap);
    return traffic;
  }
  if (spec.classes.empty()) {
    return FailParam("traffic",
                     "there is no class of requests: give input_tokens and output_tokens");
  }
  for (const TrafficClass& one : spec.classes) traffic.share_sum_ += one.share;
  if (!(traffic.share_sum_ > 0)) {
    return FailParam("share", "the shares of all classes are 0; one must be above it");
  }
  if (!traffic.closed()) traffic.schedule_.emplace(spec.arrival, spec.seed);
  return traffic;
}

std::optional<Nanos> Traffic::NextArrival() {
  const std::uint64_t index = next_++;
  if (!trace_) return schedule_->Next();
  const std::uint64_t round = index / trace_->requests.size();
  if (round > 0 && !spec_.repeat) return std::nullopt;
  const Nanos at = trace_->requests[index % trace_->requests.size()].at +
                   period_ * static_cast<std::int64_t>(round);
  return FromSeconds(ToSeconds(at) / spec_.arrival.speedup);
}

int Traffic::Scaled(int input_tokens) const {
  return spec_.input_scale == 1 ? input_tokens
                                : static_cast<int>(std::lround(spec_.input_scale * input_tokens));
}

SimRequest Traffic::FromTrace(std::uint64_t index) const {
  const load::TraceRequest& from = trace_->requests[index % trace_->requests.size()];
  const std::uint64_t round = index / trace_->requests.size();
  SimRequest request;
  request.index = index;
  request.input_tokens = Cut(Scaled(from.input_tokens), spec_.max_input_tokens);
  request.output_tokens = Cut(from.output_tokens, spec_.max_output_tokens);
  load::Random random(load::StreamSeed(load::StreamSeed(spec_.seed, kClassStream), index));
  if (random.Uniform() < spec_.batch_share) request.tier = engine::Tier::kBatch;
  int left = request.input_tokens;
  for (const std::uint64_t block : from.blocks) {
    if (left <= 0) break;
    request.blocks.push_back(
        {load::StreamSeed(block, round), std::min(left, load::kTraceBlockTokens)});
    left -= load::kTraceBlockTokens;
  }
  if (request.blocks.empty() && spec_.shared_tokens > 0) {
    request.blocks = {
        {load::StreamSeed(kPrefixStream, 0), std::min(spec_.shared_tokens, request.input_tokens)}};
  }
  return request;
}

SimRequest Traffic::Make(std::uint64_t index) const {
  if (trace_) return FromTrace(index);
  load::Random random(load::StreamSeed(load::StreamSeed(spec_.seed, kClassStream), index));
  double at = random.Uniform() * share_sum_;
  std::size_t which = 0;
  while (which + 1 < spec_.classes.size() && at >= spec_.classes[which].share) {
    at -= spec_.classes[which].share;
    ++which;
  }
  const TrafficClass& kind = spec_.classes[which];
  SimRequest request;
  request.index = index;
  request.tier = kind.tier;
  request.input_tokens = DrawLength(kind.input_tokens, kind.length_cv, random.Normal());
  request.output_tokens = DrawLength(kind.output_tokens, kind.length_cv, random.Normal());
  const int shared = std::min(
      request.input_tokens, static_cast<int>(std::lround(kind.shared_prefix * kind.input_tokens)));
  if (shared > 0) request.blocks = {{load::StreamSeed(kPrefixStream, which), shared}};
  return request;
}

int Traffic::LongestSequence() const {
  int longest = 2;
  if (trace_) {
    for (const load::TraceRequest& request : trace_->requests) {
      longest = std::max(longest, Cut(Scaled(request.input_tokens), spec_.max_input_tokens) +
                                      Cut(request.output_tokens, spec_.max_output_tokens));
    }
    return longest;
  }
  for (const TrafficClass& kind : spec_.classes) {
    longest =
        std::max(longest, DrawLength(kind.input_tokens, kind.length_cv, kMostDeviations) +
                              DrawLength(kind.output_tokens, kind.length_cv, kMostDeviations));
  }
  return longest;
}

nlohmann::json Traffic::Describe() const {
  if (trace_) {
    return {{"kind", "trace"},
            {"file", trace_->name},
            {"requests", trace_->requests.size()},
            {"repeat", spec_.repeat},
            {"max_input_tokens", spec_.max_input_tokens},
            {"max_output_tokens", spec_.max_output_tokens},
            {"batch_share", spec_.batch_share},
            {"ideal_prefix_hit_rate", trace_->ideal_prefix_hit_rate()}};
  }
  nlohmann::json classes = nlohmann::json::array();
  for (const TrafficClass& kind : spec_.classes) {
    classes.push_back({{"name", kind.name},
                       {"share", kind.share / share_sum_},
                       {"tier", kind.tier == engine::Tier::kBatch ? "batch" : "interactive"},
                       {"input_tokens", kind.input_tokens},
                       {"output_tokens", kind.output_tokens},
                       {"length_cv", kind.length_cv},
                       {"shared_prefix", kind.shared_prefix}});
  }
  return {{"kind", "synthetic"}, {"classes", std::move(classes)}};
}

Result<load::Trace> TraceOf(const TrafficSpec& spec, Nanos length, std::string name) {
  TARE_TRY(Traffic traffic, Traffic::Create(spec));
  if (traffic.closed()) {
    return FailParam("arrival", "a closed loop has no times of its own to make a trace of");
  }
  load::Trace trace;
  trace.name = std::move(name);
  for (std::uint64_t index = 0;; ++index) {
    const std::optional<Nanos> at = traffic.NextArrival();
    if (!at || *at >= length) break;
    const SimRequest request = traffic.Make(index);
    trace.requests.push_back({*at, request.input_tokens, request.output_tokens, {}});
  }
  if (trace.requests.empty()) {
    return FailParam("rate", "no request comes within {:.0f} s at that rate", ToSeconds(length));
  }
  // A trace's times count from its first request.
  const Nanos first = trace.requests.front().at;
  for (load::TraceRequest& request : trace.requests) request.at -= first;
  return trace;
}

}  // namespace tare::sim
