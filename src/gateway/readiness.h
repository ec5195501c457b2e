// How soon new channels are ready, against the targets: a canary within 3 minutes, an A/B arm
// within 120 seconds, a reload within 8 seconds.
//
// A canary or an arm is ready when its target has given a real answer (the router asks for one
// token), counted from when the configuration that brought it was asked for; a reload when the new
// configuration has taken over. What did not become ready in time counts as a miss.
//
// Kept across restarts in one JSON file, the newest kKept of each channel.
// Thread safety: all methods may be called from any thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace tare::gateway {

enum class Channel { kCanary, kAb, kReload };
inline constexpr std::array<Channel, 3> kChannels = {Channel::kCanary, Channel::kAb,
                                                     Channel::kReload};
const char* ToString(Channel channel);  // "canary", "ab", "reload"
Nanos ReadinessTarget(Channel channel);

struct ReadinessReport {
  Channel channel = Channel::kReload;
  std::uint64_t events = 0;  // of those kept
  std::uint64_t met = 0;
  double median_s = 0, worst_s = 0;  // of those that became ready; 0 without any
  struct Event {
    std::int64_t at = 0;  // Unix seconds
    double seconds = 0;   // how long it took, or how long it was waited for
    bool ready = false;
    std::string what;
  };
  std::vector<Event> last;  // newest first, at most kShown
};

class Readiness {
 public:
  static constexpr std::size_t kKept = 1000;
  static constexpr std::size_t kShown = 20;
  using WallClock = std::function<std::chrono::system_clock::time_point()>;

  // Begins with what the file holds; one that cannot be read is said and begun anew. Empty: nothing
  // is kept. `now` null: the system's clock.
  explicit Readiness(std::filesystem::path file, WallClock now = nullptr);

  // `what` names the model, or what was loaded.
  void Note(Channel channel, bool ready, Nanos took, std::string what);
  std::vector<ReadinessReport> Report() const;

 private:
  using Events = std::deque<ReadinessReport::Event>;  // oldest first
  void Load();
  void SaveLocked();

  const std::filesystem::path file_;
  const WallClock now_;
  mutable std::mutex mutex_;  // guards the rest
  std::array<Events, kChannels.size()> events_;
  bool failed_ = false;  // a write failed and was said
};

}  // namespace tare::gateway
