#include "sim/request.h"

#include <algorithm>

#include "load/random.h"

namespace tare::sim {
namespace {

constexpr std::uint64_t kOwnText = 0x6f776e;  // stream of the text nobody shares

}  // namespace

std::vector<TokenId> PromptTokens(const SimRequest& request) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(std::max(1, request.input_tokens)));
  if (request.blocks.empty()) return tokens;
  std::size_t at = 0;
  const auto mark = [&](std::uint64_t name) {
    // 62 bits of the name's hash: no two of a million names agree by chance.
    const std::uint64_t hash = load::StreamSeed(name, 0);
    for (const std::uint64_t bits : {hash & 0x7fffffff, (hash >> 31) & 0x7fffffff}) {
      if (at < tokens.size()) tokens[at++] = TokenId{static_cast<std::int32_t>(bits)};
    }
  };
  for (const PromptBlock& block : request.blocks) {
    const std::size_t begin = at;
    mark(block.name);
    at = std::min(tokens.size(), begin + static_cast<std::size_t>(block.tokens));
  }
  mark(load::StreamSeed(request.index, kOwnText));
  return tokens;
}

}  // namespace tare::sim
