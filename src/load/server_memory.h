// The memory of a server on this machine, read from /proc while a run lasts: resident (RSS) and
// proportional (PSS, which counts a page shared by n processes as 1/n) bytes, of the process and
// its descendants together.
//
// Thread safety: one thread at a time. Linux only; where /proc tells nothing (another user's
// process, say) the figures stay 0, which means unknown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"

namespace tare::load {

struct MemoryReading {
  std::uint64_t rss_bytes = 0, pss_bytes = 0;
};

// Some process of this machine listens on a TCP port.
bool IsListening(std::uint16_t port);

// The process that listens on a TCP port of this machine, or nothing.
std::optional<int> FindListener(std::uint16_t port);

// `pid` and its descendants.
std::vector<int> ProcessTree(int pid);

// `with_pss`: PSS walks the page tables (about 1 ms for each GB mapped), so it is read more rarely.
MemoryReading ReadMemory(const std::vector<int>& pids, bool with_pss);

// True for "localhost" and loopback addresses.
bool IsLoopback(const std::string& host);

class MemorySampler {
 public:
  explicit MemorySampler(int pid) : pid_(pid) {}
  // Called often; reads at most every 250 ms, PSS every second.
  void Sample(Nanos now);
  std::uint64_t peak_rss() const { return peak_rss_; }
  std::uint64_t peak_pss() const { return peak_pss_; }
  int pid() const { return pid_; }

  struct Point {
    Nanos at{0};
    std::uint64_t rss_bytes = 0;
  };
  const std::vector<Point>& points() const { return points_; }

 private:
  int pid_;
  std::vector<int> pids_;
  Nanos last_{0}, last_pss_{0};
  std::uint64_t peak_rss_ = 0, peak_pss_ = 0;
  std::vector<Point> points_;
};

}  // namespace tare::load
