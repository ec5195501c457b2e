#include "gateway/api_keys.h"

#include <string>
#include <system_error>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"

namespace tare::gateway {

namespace {

constexpr std::string_view kHashPrefix = "sha256:";
constexpr std::size_t kMaxFileBytes = 16 * 1024 * 1024;

}  // namespace

Result<std::vector<KeyHash>> ParseApiKeys(std::string_view text) {
  std::vector<KeyHash> keys;
  int number = 0;
  for (const std::string_view raw : Split(text, '\n')) {
    ++number;
    const std::string_view line = Trim(raw);
    if (line.empty() || line.front() == '#') continue;
    if (line.substr(0, kHashPrefix.size()) == kHashPrefix) {
      const auto hash = ParseKeyHash(line.substr(kHashPrefix.size()));
      if (!hash) {
        return Fail(ErrorKind::kCorrupt, "line {}: 'sha256:' must be followed by 64 hex digits",
                    number);
      }
      keys.push_back(*hash);
    } else if (line.find_first_of(" \t") != std::string_view::npos) {
      return Fail(ErrorKind::kCorrupt, "line {}: a key holds no blanks; put one key on a line",
                  number);
    } else {
      keys.push_back(HashKey(line));
    }
  }
  if (keys.empty()) {
    return Fail(ErrorKind::kCorrupt,
                "it holds no key, so nobody could use the server: add one key a line");
  }
  return keys;
}

void WarnIfReadable(const std::filesystem::path& path) {
  std::error_code error;
  const auto rights = std::filesystem::status(path, error).permissions();
  if (!error && (rights & std::filesystem::perms::others_read) != std::filesystem::perms::none) {
    LogWarn("everybody on this machine can read '{}': chmod 600 it, or store sha256 hashes",
            path.string());
  }
}

Result<std::vector<KeyHash>> LoadApiKeys(const std::filesystem::path& path) {
  TARE_TRY(const std::string text, ReadFile(path, kMaxFileBytes));
  auto keys = ParseApiKeys(text);
  if (!keys) return Context(std::move(keys).error(), "reading keys from '{}'", path.string());
  WarnIfReadable(path);
  return keys;
}

}  // namespace tare::gateway
