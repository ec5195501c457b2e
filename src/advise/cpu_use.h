// How much of the machine's processors other programs took during a measurement: what they take,
// the server could not have.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tare::advise {

// Processor time since some fixed moment, in clock ticks of the kernel.
struct CpuReading {
  std::uint64_t capacity = 0;  // all processors, idle time included
  std::uint64_t busy = 0;      // all programs together; time stolen by the host's other guests too
  std::uint64_t ours = 0;      // the processes asked about
};

// Reads /proc/stat and /proc/PID/stat; nothing when either cannot be read.
std::optional<CpuReading> ReadCpu(const std::vector<int>& pids);

// Others' part of the capacity between two readings, 0 to 1; nothing when no time passed.
std::optional<double> OthersShare(const CpuReading& before, const CpuReading& after);

// The parsers, on the files' text. Exposed for tests.
bool ParseStat(std::string_view text, CpuReading& reading);
std::optional<std::uint64_t> ParsePidStat(std::string_view text);

}  // namespace tare::advise
