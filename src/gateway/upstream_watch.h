// Looks at an upstream by itself: health probes, and scrapes of its metrics.
//
// Probes: a path asked for, or a real answer of one token, every `interval`. `down_after` failures
// in a row take the upstream out of traffic, `up_after` successes bring it back; before its first
// probe it counts as up. Scrapes: the requests an upstream runs beyond those this gateway sent it
// (other gateways' and clients') are added to what it is taken to be busy with. They only correct
// this gateway's own counts: when scrapes fail or are older than `stale_after`, the correction is
// left out, which is said once and counted, and nothing else changes.
//
// Ownership: loop and client outlive it, unless the loop no longer runs. Thread safety: Begin and
// everything that happens belong to the loop's thread; the readers may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "gateway/remote_origin.h"
#include "net/event_loop.h"
#include "net/http_client.h"

namespace tare::gateway {

struct ProbeOptions {
  std::string path;      // GET it: 2xx is well; or
  std::string generate;  // the model that is to answer one token; both empty: no probes
  Nanos interval = std::chrono::seconds(10);
  Nanos timeout = std::chrono::seconds(5);
  int down_after = 3;  // failures in a row
  int up_after = 2;    // successes in a row
  bool on() const { return !path.empty() || !generate.empty(); }
  bool operator==(const ProbeOptions&) const = default;
};

struct ScrapeOptions {
  std::string path;  // such as /metrics; empty: no scrapes
  Nanos interval = std::chrono::seconds(5);
  Nanos stale_after = std::chrono::seconds(15);
  bool on() const { return !path.empty(); }
  bool operator==(const ScrapeOptions&) const = default;
};

// From results to up and down. Thread safety: none.
class ProbeJudge {
 public:
  ProbeJudge(int down_after, int up_after) : down_after_(down_after), up_after_(up_after) {}
  // True when this result turned the state.
  bool OnResult(bool well) {
    in_a_row_ = well == last_ ? in_a_row_ + 1 : 1;
    last_ = well;
    const bool turns = well ? down_ && in_a_row_ >= up_after_ : !down_ && in_a_row_ >= down_after_;
    if (turns) down_ = !well;
    return turns;
  }
  bool down() const { return down_; }

 private:
  const int down_after_, up_after_;
  int in_a_row_ = 0;
  bool last_ = true, down_ = false;
};

struct WatchStats {
  bool probed = false, scraped = false;  // whether it does at all
  bool down = false;
  std::uint64_t probes_well = 0, probes_failed = 0;
  std::uint64_t scrapes_read = 0, scrapes_failed = 0;
  std::string last_failure;  // of a probe; empty: the last one was well
  bool scrape_stale = false;
  double foreign_requests = 0;  // by the last scrape
  double kv_usage = -1;         // -1: not told
  double kv_fragmentation = -1;
};

class UpstreamWatch final : public std::enable_shared_from_this<UpstreamWatch> {
 public:
  struct Hooks {
    std::function<int()> own_requests;  // what this gateway has running there
    std::function<void()> on_up;        // it came back
  };
  UpstreamWatch(ProbeOptions probe, ScrapeOptions scrape, RemoteOptions remote,
                net::EventLoop* loop, net::HttpClient* client, Hooks hooks);

  void Begin();  // the first probe and scrape go out at once

  bool down() const { return down_.load(std::memory_order_relaxed); }
  // Requests there that are not ours; 0 when nothing fresh is known.
  double ForeignRequests(Nanos now) const;
  // Of its KV memory, the share lost to fragmentation; 0 when nothing fresh is known.
  double KvFragmentation(Nanos now) const;
  WatchStats Stats(Nanos now) const;

 private:
  class Look;
  void Probe();
  void ProbeEnded(const Status& result);
  void Scrape();
  void ScrapeEnded(const Result<std::string>& text);
  void Ask(net::ClientRequest request, Nanos timeout, bool probe);
  bool Fresh(Nanos now) const;

  const ProbeOptions probe_;
  const ScrapeOptions scrape_;
  const RemoteOptions remote_;
  net::EventLoop* const loop_;
  net::HttpClient* const client_;
  const Hooks hooks_;
  ProbeJudge judge_;
  bool stale_said_ = false;

  std::atomic<bool> down_{false};
  std::atomic<std::uint64_t> probes_well_{0}, probes_failed_{0};
  std::atomic<std::uint64_t> scrapes_read_{0}, scrapes_failed_{0};
  std::atomic<std::int64_t> scraped_ns_{0};  // when the last good one came; 0: never
  std::atomic<double> foreign_{0}, kv_usage_{-1}, kv_fragmentation_{-1};
  mutable std::mutex mutex_;  // guards last_failure_
  std::string last_failure_;
};

}  // namespace tare::gateway
