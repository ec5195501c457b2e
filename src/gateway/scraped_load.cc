#include "gateway/scraped_load.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace tare::gateway {

namespace {

enum class Meaning { kRunning, kWaiting, kKvUsage, kKvFragmentation };

struct Name {
  std::string_view text;
  Meaning meaning;
};

constexpr std::array<Name, 12> kNames = {{
    {"vllm:num_requests_running", Meaning::kRunning},
    {"vllm:num_requests_waiting", Meaning::kWaiting},
    {"vllm:kv_cache_usage_perc", Meaning::kKvUsage},
    {"vllm:gpu_cache_usage_perc", Meaning::kKvUsage},  // before v0.9
    {"sglang:num_running_reqs", Meaning::kRunning},
    {"sglang:num_queue_reqs", Meaning::kWaiting},
    {"sglang:token_usage", Meaning::kKvUsage},
    {"llamacpp:requests_processing", Meaning::kRunning},
    {"llamacpp:requests_deferred", Meaning::kWaiting},
    {"tare_requests_running", Meaning::kRunning},
    {"tare_requests_waiting", Meaning::kWaiting},
    {"tare_kv_fragmentation_ratio", Meaning::kKvFragmentation},
}};

// The value after a name and its labels; absent when there is none that means something.
std::optional<double> ReadValue(std::string_view rest) {
  if (!rest.empty() && rest.front() == '{') {
    // Label values may hold braces: the end is the brace outside of quotes.
    bool quoted = false;
    std::size_t at = 1;
    for (; at < rest.size(); ++at) {
      if (quoted && rest[at] == '\\') {
        ++at;
      } else if (rest[at] == '"') {
        quoted = !quoted;
      } else if (!quoted && rest[at] == '}') {
        break;
      }
    }
    if (at >= rest.size()) return std::nullopt;
    rest.remove_prefix(at + 1);
  }
  const std::size_t begin = rest.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data() + begin, rest.data() + rest.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

void Raise(std::optional<double>& most, double value) {
  most = std::max(most.value_or(0), std::min(value, 1.0));
}

}  // namespace

Result<ScrapedLoad> ReadScrapedLoad(std::string_view text) {
  ScrapedLoad load;
  bool told = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view name = line.substr(0, line.find_first_of("{ \t"));
    const auto known = std::find_if(kNames.begin(), kNames.end(),
                                    [&](const Name& entry) { return entry.text == name; });
    if (known == kNames.end()) continue;
    const std::optional<double> value = ReadValue(line.substr(name.size()));
    if (!value) continue;
    switch (known->meaning) {
      case Meaning::kRunning:
        load.running += *value;
        told = true;
        break;
      case Meaning::kWaiting:
        load.waiting += *value;
        told = true;
        break;
      case Meaning::kKvUsage:
        Raise(load.kv_usage, *value);
        break;
      case Meaning::kKvFragmentation:
        Raise(load.kv_fragmentation, *value);
        break;
    }
  }
  if (!told) {
    return Fail(ErrorKind::kUnsupported,
                "its metrics name no running or waiting requests that vLLM, SGLang, llama-server "
                "or Tare would");
  }
  return load;
}

}  // namespace tare::gateway
