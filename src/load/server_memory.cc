#include "load/server_memory.h"

#include <dirent.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>

#include <charconv>
#include <fstream>
#include <map>
#include <set>
#include <string_view>

#include "base/text.h"

namespace tare::load {
namespace {

constexpr Nanos kBetweenReadings = std::chrono::milliseconds(250);
constexpr Nanos kBetweenPssReadings = std::chrono::seconds(1);

std::string ReadProc(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::vector<int> Numbers(const std::string& directory) {
  std::vector<int> numbers;
  DIR* dir = ::opendir(directory.c_str());
  if (dir == nullptr) return numbers;
  while (const dirent* entry = ::readdir(dir)) {
    int number = 0;
    const std::string_view name = entry->d_name;
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (code == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
  }
  ::closedir(dir);
  return numbers;
}

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  for (const std::string_view word : Split(line, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

// The inodes of sockets that listen on `port`, from /proc/net/tcp and tcp6.
std::set<std::string> ListeningInodes(std::uint16_t port) {
  constexpr std::string_view kListen = "0A";
  const std::string suffix = fmt::format(":{:04X}", port);
  std::set<std::string> inodes;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const std::string content = ReadProc(table);
    for (const std::string_view line : Split(content, '\n')) {
      // sl local_address rem_address st queues timer retransmits uid timeout inode …
      const std::vector<std::string_view> words = Words(line);
      if (words.size() < 10 || words[3] != kListen) continue;
      if (words[1].size() > suffix.size() &&
          words[1].substr(words[1].size() - suffix.size()) == suffix) {
        inodes.emplace(words[9]);
      }
    }
  }
  return inodes;
}

std::uint64_t KilobytesAfter(std::string_view content, std::string_view key) {
  const std::size_t at = content.find(key);
  if (at == std::string_view::npos) return 0;
  std::string_view rest = Trim(content.substr(at + key.size(), 40));
  std::uint64_t value = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), value);
  return value * 1024;
}

}  // namespace

bool IsListening(std::uint16_t port) { return !ListeningInodes(port).empty(); }

std::optional<int> FindListener(std::uint16_t port) {
  const std::set<std::string> inodes = ListeningInodes(port);
  if (inodes.empty()) return std::nullopt;
  for (const int pid : Numbers("/proc")) {
    const std::string directory = fmt::format("/proc/{}/fd", pid);
    for (const int fd : Numbers(directory)) {
      char target[64];
      const ssize_t size =
          ::readlink(fmt::format("{}/{}", directory, fd).c_str(), target, sizeof target);
      if (size <= 0) continue;
      const std::string_view link(target, static_cast<std::size_t>(size));
      constexpr std::string_view kPrefix = "socket:[";
      if (link.substr(0, kPrefix.size()) != kPrefix || link.back() != ']') continue;
      const std::string inode(link.substr(kPrefix.size(), link.size() - kPrefix.size() - 1));
      if (inodes.contains(inode)) return pid;
    }
  }
  return std::nullopt;
}

std::vector<int> ProcessTree(int pid) {
  std::multimap<int, int> children;
  for (const int other : Numbers("/proc")) {
    const std::string stat = ReadProc(fmt::format("/proc/{}/stat", other));
    // "pid (name) state parent": the name may hold anything, so count from its end.
    const std::size_t close = stat.rfind(')');
    if (close == std::string::npos) continue;
    const std::vector<std::string_view> words = Words(std::string_view(stat).substr(close + 1));
    int parent = 0;
    if (words.size() < 2) continue;
    std::from_chars(words[1].data(), words[1].data() + words[1].size(), parent);
    children.emplace(parent, other);
  }
  std::vector<int> tree = {pid};
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const auto [first, last] = children.equal_range(tree[i]);
    for (auto it = first; it != last; ++it) {
      if (std::find(tree.begin(), tree.end(), it->second) == tree.end()) {
        tree.push_back(it->second);
      }
    }
  }
  return tree;
}

MemoryReading ReadMemory(const std::vector<int>& pids, bool with_pss) {
  MemoryReading reading;
  for (const int pid : pids) {
    reading.rss_bytes += KilobytesAfter(ReadProc(fmt::format("/proc/{}/status", pid)), "VmRSS:");
    if (with_pss) {
      reading.pss_bytes +=
          KilobytesAfter(ReadProc(fmt::format("/proc/{}/smaps_rollup", pid)), "\nPss:");
    }
  }
  return reading;
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

void MemorySampler::Sample(Nanos now) {
  if (last_ != Nanos(0) && now - last_ < kBetweenReadings) return;
  last_ = now;
  const bool with_pss = last_pss_ == Nanos(0) || now - last_pss_ >= kBetweenPssReadings;
  if (with_pss) {
    last_pss_ = now;
    pids_ = ProcessTree(pid_);
  }
  const MemoryReading reading = ReadMemory(pids_, with_pss);
  peak_rss_ = std::max(peak_rss_, reading.rss_bytes);
  peak_pss_ = std::max(peak_pss_, reading.pss_bytes);
  points_.push_back({now, reading.rss_bytes});
}

}  // namespace tare::load
