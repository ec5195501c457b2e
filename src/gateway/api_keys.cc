#include "gateway/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <string>
#include <system_error>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"

namespace tare::gateway {

namespace {

constexpr std::string_view kHashPrefix = "sha256:";
constexpr std::size_t kMaxFileBytes = 16 * 1024 * 1024;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool ParseHex(std::string_view text, std::array<std::uint8_t, 32>& out) {
  if (text.size() != 2 * out.size()) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int high = HexDigit(text[2 * i]);
    const int low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

std::array<std::uint8_t, 32> Sha256(std::string_view text) {
  std::array<std::uint8_t, 32> hash{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash.data());
  return hash;
}

}  // namespace

Result<ApiKeys> ApiKeys::Parse(std::string_view text) {
  ApiKeys keys;
  int number = 0;
  for (const std::string_view raw : Split(text, '\n')) {
    ++number;
    const std::string_view line = Trim(raw);
    if (line.empty() || line.front() == '#') continue;
    if (line.substr(0, kHashPrefix.size()) == kHashPrefix) {
      Hash hash{};
      if (!ParseHex(line.substr(kHashPrefix.size()), hash)) {
        return Fail(ErrorKind::kCorrupt, "line {}: 'sha256:' must be followed by 64 hex digits",
                    number);
      }
      keys.hashes_.push_back(hash);
    } else if (line.find_first_of(" \t") != std::string_view::npos) {
      return Fail(ErrorKind::kCorrupt, "line {}: a key holds no blanks; put one key on a line",
                  number);
    } else {
      keys.hashes_.push_back(Sha256(line));
    }
  }
  if (keys.hashes_.empty()) {
    return Fail(ErrorKind::kCorrupt,
                "it holds no key, so nobody could use the server: add one key a line");
  }
  return keys;
}

Result<ApiKeys> ApiKeys::Load(const std::filesystem::path& path) {
  TARE_TRY(const std::string text, ReadFile(path, kMaxFileBytes));
  auto keys = Parse(text);
  if (!keys) return Context(std::move(keys).error(), "reading keys from '{}'", path.string());
  std::error_code error;
  const auto rights = std::filesystem::status(path, error).permissions();
  if (!error && (rights & std::filesystem::perms::others_read) != std::filesystem::perms::none) {
    LogWarn("everybody on this machine can read '{}': chmod 600 it, or store sha256: lines",
            path.string());
  }
  return keys;
}

bool ApiKeys::Accepts(std::string_view key) const {
  const Hash hash = Sha256(key);
  unsigned found = 0;
  for (const Hash& known : hashes_) {
    found |= CRYPTO_memcmp(hash.data(), known.data(), hash.size()) == 0 ? 1u : 0u;
  }
  return found != 0;
}

}  // namespace tare::gateway
