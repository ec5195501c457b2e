// Turns requests away that come faster than a model answers them, before they wait in vain.
//
// A model that answers `requests_per_s` works off a burst in time; a request that would have to
// wait longer than `within` by that pace is refused and told when to come again. Unlike the waiting
// room, which fills when upstreams say that they are full, this knows the pace from measurement.
//
// Thread safety: none. Time is the caller's.
// Source: the virtual scheduling form of the generic cell rate algorithm (ITU-T I.371, annex A).
#pragma once

#include <algorithm>
#include <optional>

#include "base/types.h"

namespace tare::gateway {

struct ShedOptions {
  double requests_per_s = 0;  // 0: nothing is turned away
  Nanos within = std::chrono::seconds(1);
  bool operator==(const ShedOptions&) const = default;
};

class LoadShedder {
 public:
  explicit LoadShedder(ShedOptions options) : options_(options) {}

  // Absent: the request may go. Else how long until one may.
  std::optional<Nanos> Admit(Nanos now) {
    if (options_.requests_per_s <= 0) return std::nullopt;
    const Nanos wait = std::max(free_at_, now) - now;
    if (wait > options_.within) return wait - options_.within;
    free_at_ = now + wait + FromSeconds(1 / options_.requests_per_s);
    return std::nullopt;
  }

 private:
  const ShedOptions options_;
  Nanos free_at_{};  // when what was let in so far is answered, by the pace
};

}  // namespace tare::gateway
