// Requests that wait until a target of their route has room: one room per route.
//
// Interactive requests go before batch ones; a batch request that has waited for `ageing` counts as
// interactive, so that it is not starved. Equals go in the order they came. Each tier has a limit:
// a request that finds its tier full is told to come back instead of growing a backlog that
// nobody would wait for.
//
// Thread safety: belongs to one thread; DepthOf may be read from any. Time is the caller's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "api/chat.h"
#include "base/types.h"
#include "gateway/load_shedder.h"

namespace tare::gateway {

struct QueueOptions {
  struct Limits {
    int limit = 256;                          // requests waiting at a time
    Nanos timeout = std::chrono::seconds(5);  // the longest wait; then 503
    ShedOptions shed;                         // before it comes to waiting

    friend bool operator==(const Limits& a, const Limits& b) {
      return a.limit == b.limit && a.timeout == b.timeout && a.shed == b.shed;
    }
  };
  Limits interactive{256, std::chrono::seconds(5), {}};
  Limits batch{1024, std::chrono::seconds(60), {}};
  Nanos ageing = std::chrono::seconds(10);
  // More waiting than this for `scale_out_after` asks for more servers.
  int scale_out_depth = 16;
  Nanos scale_out_after = std::chrono::seconds(30);

  const Limits& Of(api::Tier tier) const { return tier == api::Tier::kBatch ? batch : interactive; }
  bool operator==(const QueueOptions&) const = default;
};

class WaitingRoom {
 public:
  explicit WaitingRoom(QueueOptions options) : options_(options) {}

  const QueueOptions& options() const { return options_; }
  // False when the tier is full.
  bool Enter(std::uint64_t id, api::Tier tier, Nanos now);
  void Leave(std::uint64_t id, api::Tier tier, Nanos now);

  // Offers the waiting ones, first in line first, to `place` until one is refused: true takes it
  // out. `place` must not enter or leave the room itself.
  template <typename Place>
  void Serve(Nanos now, Place place) {
    while (const auto next = First(now)) {
      if (!place(next->first)) return;
      Leave(next->first, next->second, now);
      NoteServed(now);
    }
  }

  int depth(api::Tier tier) const { return depth_[Index(tier)].load(std::memory_order_relaxed); }
  // How long a newcomer would wait, by the pace of late; at least a second.
  Nanos ExpectedWait() const;
  // More than scale_out_depth have waited for scale_out_after without a pause. Any thread.
  bool WantsMoreServers(Nanos now) const;

 private:
  struct Entry {
    std::uint64_t id = 0;
    Nanos entered{};
  };
  static std::size_t Index(api::Tier tier) { return tier == api::Tier::kBatch ? 1 : 0; }
  std::optional<std::pair<std::uint64_t, api::Tier>> First(Nanos now) const;
  void NoteServed(Nanos now);
  void NoteDepth(Nanos now);

  const QueueOptions options_;
  std::array<std::deque<Entry>, 2> lines_;
  std::array<std::atomic<int>, 2> depth_{};
  std::atomic<std::int64_t> deep_since_ns_{0};  // 0: not deep
  Nanos last_served_{};
  double interval_s_ = 0;  // smoothed time between two served
};

}  // namespace tare::gateway
