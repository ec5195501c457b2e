#include "advise/cpu_use.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "base/text.h"
#include "base/units.h"

namespace tare::advise {
namespace {

std::string ReadProc(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Words of a line, runs of blanks as one separator.
std::vector<std::string_view> WordsOf(std::string_view line) {
  std::vector<std::string_view> words;
  for (const std::string_view word : Split(line, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

}  // namespace

bool ParseStat(std::string_view text, CpuReading& reading) {
  // proc(5): "cpu user nice system idle iowait irq softirq steal guest guest_nice"; guest time is
  // part of user time already.
  const std::vector<std::string_view> words = WordsOf(text.substr(0, text.find('\n')));
  constexpr std::size_t kIdle = 4, kIoWait = 5, kSteal = 8;
  if (words.size() <= kSteal || words[0] != "cpu") return false;
  for (std::size_t i = 1; i <= kSteal; ++i) {
    const auto ticks = ParseInteger(words[i]);
    if (!ticks || *ticks < 0) return false;
    reading.capacity += static_cast<std::uint64_t>(*ticks);
    if (i != kIdle && i != kIoWait) reading.busy += static_cast<std::uint64_t>(*ticks);
  }
  return true;
}

std::optional<std::uint64_t> ParsePidStat(std::string_view text) {
  // The program's name stands in brackets and may hold anything; fields count from after it.
  const std::size_t bracket = text.rfind(')');
  if (bracket == std::string_view::npos) return std::nullopt;
  const std::vector<std::string_view> words = WordsOf(Trim(text.substr(bracket + 1)));
  constexpr std::size_t kUser = 11, kSystem = 12;  // utime and stime, proc(5) fields 14 and 15
  if (words.size() <= kSystem) return std::nullopt;
  const auto user = ParseInteger(words[kUser]);
  const auto system = ParseInteger(words[kSystem]);
  if (!user || !system || *user < 0 || *system < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*user + *system);
}

std::optional<CpuReading> ReadCpu(const std::vector<int>& pids) {
  CpuReading reading;
  if (!ParseStat(ReadProc("/proc/stat"), reading)) return std::nullopt;
  for (const int pid : pids) {
    const auto ticks = ParsePidStat(ReadProc(fmt::format("/proc/{}/stat", pid)));
    if (!ticks) return std::nullopt;
    reading.ours += *ticks;
  }
  return reading;
}

std::optional<double> OthersShare(const CpuReading& before, const CpuReading& after) {
  if (after.capacity <= before.capacity || after.busy < before.busy || after.ours < before.ours) {
    return std::nullopt;
  }
  const auto capacity = static_cast<double>(after.capacity - before.capacity);
  const double others =
      static_cast<double>(after.busy - before.busy) - static_cast<double>(after.ours - before.ours);
  return std::clamp(others / capacity, 0.0, 1.0);
}

}  // namespace tare::advise
