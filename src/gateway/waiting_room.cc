#include "gateway/waiting_room.h"

#include <algorithm>
#include <cmath>

namespace tare::gateway {

namespace {

constexpr double kSmoothing = 0.1;
constexpr double kLongestAdvice = 60;  // seconds

}  // namespace

bool WaitingRoom::Enter(std::uint64_t id, api::Tier tier, Nanos now) {
  auto& line = lines_[Index(tier)];
  if (static_cast<int>(line.size()) >= options_.Of(tier).limit) return false;
  line.push_back({id, now});
  NoteDepth(now);
  return true;
}

void WaitingRoom::Leave(std::uint64_t id, api::Tier tier, Nanos now) {
  auto& line = lines_[Index(tier)];
  const auto found =
      std::find_if(line.begin(), line.end(), [&](const Entry& entry) { return entry.id == id; });
  if (found != line.end()) line.erase(found);
  NoteDepth(now);
}

std::optional<std::pair<std::uint64_t, api::Tier>> WaitingRoom::First(Nanos now) const {
  const auto& interactive = lines_[Index(api::Tier::kInteractive)];
  const auto& batch = lines_[Index(api::Tier::kBatch)];
  if (interactive.empty() && batch.empty()) return std::nullopt;
  const bool aged = !batch.empty() && now - batch.front().entered >= options_.ageing;
  const bool batch_first =
      interactive.empty() || (aged && batch.front().entered <= interactive.front().entered);
  return batch_first ? std::pair(batch.front().id, api::Tier::kBatch)
                     : std::pair(interactive.front().id, api::Tier::kInteractive);
}

void WaitingRoom::NoteServed(Nanos now) {
  if (last_served_ != Nanos{}) {
    const double interval = ToSeconds(now - last_served_);
    interval_s_ += (interval_s_ == 0 ? 1 : kSmoothing) * (interval - interval_s_);
  }
  last_served_ = now;
}

void WaitingRoom::NoteDepth(Nanos now) {
  int total = 0;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    depth_[i].store(static_cast<int>(lines_[i].size()), std::memory_order_relaxed);
    total += static_cast<int>(lines_[i].size());
  }
  if (total <= options_.scale_out_depth) {
    deep_since_ns_.store(0);
  } else if (deep_since_ns_.load() == 0) {
    deep_since_ns_.store(std::max<std::int64_t>(1, now.count()));
  }
}

Nanos WaitingRoom::ExpectedWait() const {
  const double waiting = depth(api::Tier::kInteractive) + depth(api::Tier::kBatch);
  return FromSeconds(std::clamp(std::ceil(waiting * interval_s_), 1.0, kLongestAdvice));
}

bool WaitingRoom::WantsMoreServers(Nanos now) const {
  const std::int64_t since = deep_since_ns_.load();
  return since != 0 && now.count() - since >= options_.scale_out_after.count();
}

}  // namespace tare::gateway
