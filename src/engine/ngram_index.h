// Where the end of a text has occurred in it before: the source of drafts that need no second
// model. Prompt look-up decoding (Saxena 2023) with the match search of LZ77 compressors: every
// pair of neighbouring tokens leads, through a table of heads and a chain of predecessors, to the
// places where it ended earlier; of those the longest common end wins.
//
// Memory: 4 bytes per token and 8 to 16 per table entry. Time: Extend is constant per token (the
// table doubles now and then), Find looks at kMostCandidates places.
//
// Ownership: the tokens stay with the caller; of those already indexed none may change until
// Clear. Thread safety: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace tare::engine {

// A shorter match says nothing; how much longer ones are does not matter past the longest.
inline constexpr std::uint32_t kShortestMatch = 2;
inline constexpr std::uint32_t kLongestMatch = 32;

struct Match {
  std::uint32_t next = 0;    // index of the token that followed the earlier occurrence
  std::uint32_t length = 0;  // tokens in common, kShortestMatch to kLongestMatch; 0: no match
};

class NgramIndex {
 public:
  // Indexes what follows the tokens indexed before.
  void Extend(std::span<const TokenId> tokens);
  // The longest match of the end of `tokens`, all of which are indexed; the latest of equal ones.
  Match Find(std::span<const TokenId> tokens) const;
  void Clear();

 private:
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  static constexpr int kMostCandidates = 64;

  std::size_t BucketOf(TokenId first, TokenId second) const;
  void Insert(std::span<const TokenId> tokens, std::uint32_t at);

  std::vector<std::uint32_t> heads_;     // by bucket: the last place with such a pair
  std::vector<std::uint32_t> previous_;  // by place: the one before it in the same bucket
};

// Appends `count` tokens as they would follow if the text went on as it did after the match. Past
// the end of the text they repeat themselves, as a loop does.
void AppendContinuation(std::span<const TokenId> tokens, const Match& match, std::uint32_t count,
                        std::vector<TokenId>& drafts);

}  // namespace tare::engine
