#include "gateway/upstream_watch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "api/json_text.h"
#include "api/upstream_wire.h"
#include "base/log.h"
#include "gateway/scraped_load.h"

namespace tare::gateway {

namespace {

constexpr std::size_t kMaxAnswer = 4 * 1024 * 1024;  // bytes; large servers' metrics have 100 KB

bool IsWell(int status) { return status >= 200 && status < 300; }

net::Url AtRoot(net::Url url, const std::string& path) {
  url.target = path;
  return url;
}

}  // namespace

// One answer being waited for.
class UpstreamWatch::Look final : public net::ClientHandler {
 public:
  Look(std::weak_ptr<UpstreamWatch> watch, bool probe) : watch_(std::move(watch)), probe_(probe) {}

  void OnHead(const net::HttpResponseHead& head, const net::ClientTimes&) override {
    status_ = head.status;
  }
  void OnBody(std::string_view piece, Nanos) override {
    if (body_.size() + piece.size() <= kMaxAnswer) {
      body_.append(piece);
    } else {
      too_large_ = true;
    }
  }
  void OnDone(const net::ClientTimes&) override {
    if (too_large_) {
      End(Fail(ErrorKind::kCorrupt, "the answer is larger than {} bytes", kMaxAnswer));
    } else if (!IsWell(status_)) {
      End(Fail(ErrorKind::kUnavailable, "status {}", status_));
    } else {
      End(std::move(body_));
    }
  }
  void OnFailure(const net::ClientFailure& failure, const net::ClientTimes&) override {
    End(tl::unexpected(failure.error));
  }

 private:
  void End(Result<std::string> answer) {
    const std::shared_ptr<UpstreamWatch> watch = watch_.lock();
    if (watch == nullptr) return;
    if (!probe_) return watch->ScrapeEnded(answer);
    if (!answer) return watch->ProbeEnded(tl::unexpected(std::move(answer).error()));
    watch->ProbeEnded(watch->probe_.generate.empty() ? Status{} : Generated(*answer));
  }

  // Whether the answer holds a token.
  static Status Generated(const std::string& body) {
    const auto read = api::ReadStreamEvent(body);
    if (!read) return tl::unexpected(read.error());
    if (read->error) return tl::unexpected(*read->error);
    const bool answered =
        std::any_of(read->chunks.begin(), read->chunks.end(), [](const api::ChatChunk& chunk) {
          return chunk.finish != api::FinishReason::kNone || chunk.tokens > 0;
        });
    if (answered) return {};
    return Fail(ErrorKind::kCorrupt, "it answered 200 without an answer of the model");
  }

  const std::weak_ptr<UpstreamWatch> watch_;
  const bool probe_;
  int status_ = 0;
  bool too_large_ = false;
  std::string body_;
};

UpstreamWatch::UpstreamWatch(ProbeOptions probe, ScrapeOptions scrape, RemoteOptions remote,
                             net::EventLoop* loop, net::HttpClient* client, Hooks hooks)
    : probe_(std::move(probe)),
      scrape_(std::move(scrape)),
      remote_(std::move(remote)),
      loop_(loop),
      client_(client),
      hooks_(std::move(hooks)),
      judge_(probe_.down_after, probe_.up_after) {}

void UpstreamWatch::Begin() {
  if (probe_.on()) Probe();
  if (scrape_.on()) Scrape();
}

void UpstreamWatch::Ask(net::ClientRequest request, Nanos timeout, bool probe) {
  if (!remote_.api_key.empty()) {
    request.headers.push_back({"Authorization", "Bearer " + remote_.api_key});
  }
  request.connect_timeout = timeout;
  request.total_timeout = timeout;
  auto look = std::make_shared<Look>(weak_from_this(), probe);
  if (auto started = client_->Start(std::move(request), look); !started) {
    // A path with a line break: nothing is sent, and it will not become better.
    look->OnFailure({net::ClientFailureKind::kBadResponse, std::move(started).error()}, {});
  }
}

void UpstreamWatch::Probe() {
  net::ClientRequest request;
  if (probe_.generate.empty()) {
    request.url = AtRoot(remote_.url, probe_.path);
  } else {
    request.method = "POST";
    request.url = ChatEndpoint(remote_.url, /*chat=*/true);
    request.headers = {{"Content-Type", "application/json"}};
    request.body = R"({"model":)";
    api::AppendJsonString(request.body, probe_.generate);
    request.body += R"(,"messages":[{"role":"user","content":"Hi"}],"max_tokens":1})";
  }
  Ask(std::move(request), probe_.timeout, /*probe=*/true);
}

void UpstreamWatch::ProbeEnded(const Status& result) {
  (result ? probes_well_ : probes_failed_).fetch_add(1);
  {
    std::lock_guard lock(mutex_);
    last_failure_ = result ? "" : result.error().message;
  }
  if (judge_.OnResult(result.has_value())) {
    down_.store(judge_.down());
    if (judge_.down()) {
      LogWarn("upstream '{}' gets no requests: {} probes in a row failed, the last: {}",
              remote_.name, probe_.down_after, result.error().message);
    } else {
      LogInfo("upstream '{}' gets requests again: {} probes in a row were well", remote_.name,
              probe_.up_after);
      hooks_.on_up();
    }
  }
  loop_->RunAt(net::MonotonicNow() + probe_.interval, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Probe();
  });
}

void UpstreamWatch::Scrape() {
  net::ClientRequest request;
  request.url = AtRoot(remote_.url, scrape_.path);
  Ask(std::move(request), scrape_.interval, /*probe=*/false);
}

void UpstreamWatch::ScrapeEnded(const Result<std::string>& text) {
  const Nanos now = net::MonotonicNow();
  const Result<ScrapedLoad> load =
      text ? ReadScrapedLoad(*text) : Result<ScrapedLoad>(tl::unexpected(text.error()));
  if (load) {
    scrapes_read_.fetch_add(1);
    const double own = hooks_.own_requests();
    foreign_.store(std::max(0.0, load->running + load->waiting - own));
    kv_usage_.store(load->kv_usage.value_or(-1));
    kv_fragmentation_.store(load->kv_fragmentation.value_or(-1));
    scraped_ns_.store(now.count());
    if (std::exchange(stale_said_, false)) {
      LogInfo("metrics of upstream '{}' can be read again", remote_.name);
    }
  } else {
    scrapes_failed_.fetch_add(1);
    if (!Fresh(now) && !std::exchange(stale_said_, true)) {
      LogWarn("metrics of upstream '{}' at {} cannot be read: {}; balancing goes on by own counts",
              remote_.name, scrape_.path, load.error().message);
    }
  }
  loop_->RunAt(now + scrape_.interval, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Scrape();
  });
}

bool UpstreamWatch::Fresh(Nanos now) const {
  const Nanos scraped(scraped_ns_.load(std::memory_order_relaxed));
  return scraped != Nanos{} && now - scraped <= scrape_.stale_after;
}

double UpstreamWatch::ForeignRequests(Nanos now) const {
  return Fresh(now) ? foreign_.load(std::memory_order_relaxed) : 0;
}

double UpstreamWatch::KvFragmentation(Nanos now) const {
  return Fresh(now) ? std::max(0.0, kv_fragmentation_.load(std::memory_order_relaxed)) : 0;
}

WatchStats UpstreamWatch::Stats(Nanos now) const {
  WatchStats stats;
  stats.probed = probe_.on();
  stats.scraped = scrape_.on();
  stats.down = down_.load();
  stats.probes_well = probes_well_.load();
  stats.probes_failed = probes_failed_.load();
  stats.scrapes_read = scrapes_read_.load();
  stats.scrapes_failed = scrapes_failed_.load();
  {
    std::lock_guard lock(mutex_);
    stats.last_failure = last_failure_;
  }
  stats.scrape_stale = scrape_.on() && !Fresh(now);
  stats.foreign_requests = foreign_.load();
  stats.kv_usage = kv_usage_.load();
  stats.kv_fragmentation = kv_fragmentation_.load();
  return stats;
}

}  // namespace tare::gateway
