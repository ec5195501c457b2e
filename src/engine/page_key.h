// Names of full KV pages in the prefix cache.
//
// A page's numbers depend on its own tokens and on all tokens before it, so its key is a hash
// chained over the pages before it, starting from the request's cache salt (which separates
// tenants) and the adapter. A collision would show one user another's context, and users choose
// the tokens; hence SHA-256, cut to 128 bits, and not a faster hash without collision resistance.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace tare::engine {

struct PageKey {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const PageKey&) const = default;
};

// The parent of a first page. `adapter` is the id of the adapter it is computed with, of this very
// load; 0: none.
PageKey RootKey(std::string_view salt, std::uint64_t adapter = 0);
// `tokens` are one full page's.
PageKey ChainKey(const PageKey& parent, std::span<const TokenId> tokens);
// Appends keys to `keys` until it covers all full pages of `tokens`.
void ExtendKeys(const PageKey& root, std::span<const TokenId> tokens, std::vector<PageKey>& keys);

}  // namespace tare::engine

template <>
struct std::hash<tare::engine::PageKey> {
  std::size_t operator()(const tare::engine::PageKey& key) const noexcept {
    return static_cast<std::size_t>(key.low);
  }
};
