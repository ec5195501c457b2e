#include "engine/page_key.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "base/sha256.h"
#include "kernels/kv_pages.h"

namespace tare::engine {
namespace {

PageKey Hash(std::span<const unsigned char> bytes) {
  const Sha256Digest digest = Sha256(std::as_bytes(bytes));
  PageKey key;
  std::memcpy(&key.high, digest.data(), sizeof key.high);
  std::memcpy(&key.low, digest.data() + sizeof key.high, sizeof key.low);
  return key;
}

}  // namespace

PageKey RootKey(std::string_view salt, std::uint64_t adapter) {
  // The length of this input differs from ChainKey's, or its first bytes do: no root equals a
  // page's key but by collision.
  std::vector<unsigned char> bytes = {'s', 'a', 'l', 't', ':'};
  if (adapter != 0) {
    bytes = {'l', 'o', 'r', 'a', ':'};
    const auto* id = reinterpret_cast<const unsigned char*>(&adapter);
    bytes.insert(bytes.end(), id, id + sizeof adapter);
  }
  bytes.insert(bytes.end(), salt.begin(), salt.end());
  return Hash(bytes);
}

PageKey ChainKey(const PageKey& parent, std::span<const TokenId> tokens) {
  TARE_DCHECK(tokens.size() == kernels::kTokensPerPage);
  constexpr std::size_t kPrefix = 5;
  std::array<unsigned char, kPrefix + sizeof(PageKey) + kernels::kTokensPerPage * sizeof(TokenId)>
      bytes;
  std::memcpy(bytes.data(), "page:", kPrefix);
  std::memcpy(bytes.data() + kPrefix, &parent, sizeof parent);
  std::memcpy(bytes.data() + kPrefix + sizeof parent, tokens.data(), tokens.size_bytes());
  return Hash(bytes);
}

void ExtendKeys(const PageKey& root, std::span<const TokenId> tokens, std::vector<PageKey>& keys) {
  const std::size_t full = tokens.size() / kernels::kTokensPerPage;
  keys.reserve(full);
  while (keys.size() < full) {
    const std::size_t page = keys.size();
    keys.push_back(
        ChainKey(page == 0 ? root : keys.back(),
                 tokens.subspan(page * kernels::kTokensPerPage, kernels::kTokensPerPage)));
  }
}

}  // namespace tare::engine
