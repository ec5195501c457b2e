#include "gateway/access.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "base/sha256.h"

namespace tare::gateway {

namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

KeyHash HashKey(std::string_view key) { return Sha256(key); }

std::optional<KeyHash> ParseKeyHash(std::string_view hex) {
  KeyHash hash{};
  if (hex.size() != 2 * hash.size()) return std::nullopt;
  for (std::size_t i = 0; i < hash.size(); ++i) {
    const int high = HexDigit(hex[2 * i]);
    const int low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    hash[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return hash;
}

bool AccessKey::MayUse(std::string_view model) const {
  return models.empty() || std::find(models.begin(), models.end(), model) != models.end();
}

std::shared_ptr<const AccessKey> Access::Find(std::string_view key) const {
  const KeyHash hash = HashKey(key);
  std::shared_ptr<const AccessKey> found;
  for (const auto& known : keys) {
    if (CRYPTO_memcmp(hash.data(), known->hash.data(), hash.size()) == 0) found = known;
  }
  return found;
}

TenantLimits Access::LimitsOf(std::string_view tenant) const {
  const auto found = tenants.find(tenant);
  return found == tenants.end() ? TenantLimits{} : found->second;
}

TokenPrice Access::PriceOf(std::string_view model) const {
  const auto found = prices.find(model);
  return found == prices.end() ? TokenPrice{} : found->second;
}

}  // namespace tare::gateway
