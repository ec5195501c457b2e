#include "load/server_metrics.h"

#include <charconv>
#include <cmath>
#include <mutex>

#include "base/text.h"

namespace tare::load {
namespace {

constexpr Nanos kBetweenReadings = std::chrono::seconds(1);
constexpr std::size_t kMostBytes = 16 << 20;  // of one answer

struct KnownName {
  const char* figure;
  const char* metric;
  // When set, the figure is the share of the samples with this label in all of the metric.
  const char* share_of_label = nullptr;
};
// The first name that a server has is taken.
constexpr KnownName kKnown[] = {
    {"waiting", "vllm:num_requests_waiting"},
    {"waiting", "sglang:num_queue_reqs"},
    {"waiting", "llamacpp:requests_deferred"},
    {"waiting", "tare_requests_waiting"},
    {"running", "vllm:num_requests_running"},
    {"running", "sglang:num_running_reqs"},
    {"running", "llamacpp:requests_processing"},
    {"running", "tare_requests_running"},
    {"kv_use", "vllm:kv_cache_usage_perc"},
    {"kv_use", "vllm:gpu_cache_usage_perc"},
    {"kv_use", "sglang:token_usage"},
    {"kv_use", "llamacpp:kv_cache_usage_ratio"},
    {"kv_use", "tare_kv_pages", "state=\"used\""},
    {"prefix_hits", "vllm:prefix_cache_hits_total"},
    {"prefix_hits", "vllm:gpu_prefix_cache_hits_total"},
    {"prefix_hits", "sglang:cached_tokens_total"},
    {"prefix_hits", "tare_prefix_cache_hits_total"},
    {"prefix_queries", "vllm:prefix_cache_queries_total"},
    {"prefix_queries", "vllm:gpu_prefix_cache_queries_total"},
    {"prefix_queries", "sglang:prompt_tokens_total"},
    {"prefix_queries", "tare_prefix_cache_queries_total"},
};

// The end of a label set that begins at `text[0] == '{'`, quotes and escapes respected.
std::size_t EndOfLabels(std::string_view text) {
  bool quoted = false;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (text[i] == '}' && !quoted) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

std::vector<MetricSample> ParsePrometheus(std::string_view text) {
  std::vector<MetricSample> samples;
  for (const std::string_view raw : Split(text, '\n')) {
    const std::string_view line = Trim(raw);
    if (line.empty() || line.front() == '#') continue;
    const std::size_t name_end = line.find_first_of("{ \t");
    if (name_end == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, name_end);
    if (EndsWith(name, "_bucket")) continue;
    std::string_view rest = line.substr(name_end);
    std::string_view labels;
    if (rest.front() == '{') {
      const std::size_t end = EndOfLabels(rest);
      if (end == std::string_view::npos) continue;
      labels = rest.substr(1, end - 2);
      rest.remove_prefix(end);
    }
    rest = Trim(rest);
    rest = rest.substr(0, rest.find_first_of(" \t"));  // a time stamp may follow
    double value = 0;
    const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (code != std::errc() || end != rest.data() + rest.size() || !std::isfinite(value)) continue;
    samples.push_back({std::string(name), std::string(labels), value});
  }
  return samples;
}

std::map<std::string, double> KnownServerFigures(const std::vector<MetricSample>& samples) {
  std::map<std::string, double> figures;
  for (const KnownName& known : kKnown) {
    if (figures.contains(known.figure)) continue;
    double all = 0, labelled = 0;
    bool found = false;
    for (const MetricSample& sample : samples) {
      if (sample.name != known.metric) continue;
      found = true;
      all += sample.value;
      if (known.share_of_label != nullptr &&
          sample.labels.find(known.share_of_label) != std::string::npos) {
        labelled += sample.value;
      }
    }
    if (!found) continue;
    figures[known.figure] = known.share_of_label == nullptr ? all : all > 0 ? labelled / all : 0;
  }
  return figures;
}

// Shared with the answers under way, which may outlive the scraper by a moment.
struct Readings {
  std::mutex mutex;  // guards the rest
  std::map<std::string, MetricsScraper::Series> series;
  bool asking = false;
  bool absent = false;
};

struct MetricsScraper::Impl {
  net::ClientRequest request;
  std::shared_ptr<Readings> readings = std::make_shared<Readings>();
  Nanos last{0};
  std::unique_ptr<net::HttpClientThread> client;  // ends first
};

namespace {

struct Answer final : net::ClientHandler {
  explicit Answer(std::shared_ptr<Readings> r) : readings(std::move(r)) {}
  void OnHead(const net::HttpResponseHead& head, const net::ClientTimes&) override {
    status = head.status;
  }
  void OnBody(std::string_view piece, Nanos) override {
    if (body.size() + piece.size() <= kMostBytes) body.append(piece);
  }
  void OnDone(const net::ClientTimes& times) override {
    const auto figures = KnownServerFigures(ParsePrometheus(body));
    const std::lock_guard lock(readings->mutex);
    readings->asking = false;
    readings->absent = status != 200;
    for (const auto& [name, value] : figures) {
      readings->series[name].at.push_back(times.first_byte);
      readings->series[name].value.push_back(value);
    }
  }
  void OnFailure(const net::ClientFailure&, const net::ClientTimes&) override {
    const std::lock_guard lock(readings->mutex);
    readings->asking = false;
  }

  std::shared_ptr<Readings> readings;
  int status = 0;
  std::string body;
};

}  // namespace

MetricsScraper::MetricsScraper(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsScraper::~MetricsScraper() = default;

Result<std::unique_ptr<MetricsScraper>> MetricsScraper::Create(net::Url url,
                                                               net::HttpHeaders headers,
                                                               bool verify_tls) {
  auto impl = std::make_unique<Impl>();
  impl->request.url = std::move(url);
  impl->request.headers = std::move(headers);
  impl->request.total_timeout = std::chrono::seconds(5);
  net::HttpClientOptions options;
  options.verify_tls = verify_tls;
  TARE_TRY(impl->client, net::HttpClientThread::Create(std::move(options)));
  return std::unique_ptr<MetricsScraper>(new MetricsScraper(std::move(impl)));
}

void MetricsScraper::Tick(Nanos now) {
  if (impl_->last != Nanos(0) && now - impl_->last < kBetweenReadings) return;
  {
    const std::lock_guard lock(impl_->readings->mutex);
    if (impl_->readings->asking || impl_->readings->absent) return;
    impl_->readings->asking = true;
  }
  impl_->last = now;
  // Headers were checked when the target was probed with the same ones.
  static_cast<void>(
      impl_->client->Start(impl_->request, std::make_shared<Answer>(impl_->readings)));
}

std::map<std::string, MetricsScraper::Series> MetricsScraper::Take() {
  const std::lock_guard lock(impl_->readings->mutex);
  return std::move(impl_->readings->series);
}

}  // namespace tare::load
