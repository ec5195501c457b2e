// Who may ask, for what, and how much: keys, tenants and prices.
//
// A tenant is whom requests are counted for; its keys are kept as SHA-256 hashes only. Without any
// key the service is open, and everything is counted for the tenant "default".
//
// Thread safety: immutable once built.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat.h"
#include "base/result.h"

namespace tare::gateway {

using KeyHash = std::array<std::uint8_t, 32>;
KeyHash HashKey(std::string_view key);
// 64 hex digits.
std::optional<KeyHash> ParseKeyHash(std::string_view hex);

inline constexpr std::string_view kDefaultTenant = "default";

// Absent: no limit. A minute is a minute of the clock (UTC), a month a calendar month (UTC).
struct TenantLimits {
  std::optional<std::int64_t> requests_per_minute;
  std::optional<std::int64_t> tokens_per_minute;   // prompt and answer
  std::optional<std::int64_t> nano_usd_per_month;  // 1 USD = 10^9
  bool any() const { return requests_per_minute || tokens_per_minute || nano_usd_per_month; }
  bool operator==(const TenantLimits&) const = default;
};

// Of a model, in nano-USD per token: 1 USD per million tokens is 1,000.
struct TokenPrice {
  std::int64_t input = 0;
  std::int64_t cached = 0;  // input found in the prefix cache
  std::int64_t output = 0;
  std::int64_t Of(const api::Usage& usage) const {
    return (usage.prompt_tokens - usage.cached_tokens) * input + usage.cached_tokens * cached +
           usage.completion_tokens * output;
  }
};

struct AccessKey {
  std::string name;
  std::string tenant{kDefaultTenant};
  std::vector<std::string> models;  // as clients call them; empty: all
  bool batch = false;               // its requests are of the batch tier whatever they say
  KeyHash hash{};

  bool MayUse(std::string_view model) const;
};

struct Access {
  std::vector<std::shared_ptr<const AccessKey>> keys;
  std::map<std::string, TenantLimits, std::less<>> tenants;
  std::map<std::string, TokenPrice, std::less<>> prices;  // by the model's name and aliases

  bool open() const { return keys.empty(); }
  // Null when nobody has that key. Takes the same time for every key of a length.
  std::shared_ptr<const AccessKey> Find(std::string_view key) const;
  TenantLimits LimitsOf(std::string_view tenant) const;
  TokenPrice PriceOf(std::string_view model) const;
};

}  // namespace tare::gateway
