#include "engine/ngram_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace tare::engine {

std::size_t NgramIndex::BucketOf(TokenId first, TokenId second) const {
  const auto a = static_cast<std::uint64_t>(static_cast<std::uint32_t>(ToInt(first)));
  const auto b = static_cast<std::uint64_t>(static_cast<std::uint32_t>(ToInt(second)));
  // Multiplicative hashing (Knuth, vol. 3): the upper bits depend on all of the lower ones.
  const std::uint64_t hash = ((a << 32) | b) * 0x9E3779B97F4A7C15;
  return static_cast<std::size_t>(hash >> 32) & (heads_.size() - 1);
}

void NgramIndex::Insert(std::span<const TokenId> tokens, std::uint32_t at) {
  std::uint32_t& head = heads_[BucketOf(tokens[at - 1], tokens[at])];
  previous_[at] = head;
  head = at;
}

void NgramIndex::Extend(std::span<const TokenId> tokens) {
  auto begin = static_cast<std::uint32_t>(previous_.size());
  const auto end = static_cast<std::uint32_t>(tokens.size());
  TARE_CHECK(begin <= end);
  if (begin == end) return;
  previous_.resize(end, kNowhere);
  if (2 * std::size_t{end} > heads_.size()) {
    heads_.assign(std::bit_ceil(std::max<std::size_t>(4 * std::size_t{end}, 256)), kNowhere);
    begin = 0;
  }
  for (std::uint32_t at = std::max(begin, 1u); at < end; ++at) Insert(tokens, at);
}

Match NgramIndex::Find(std::span<const TokenId> tokens) const {
  TARE_CHECK(tokens.size() == previous_.size());
  Match best;
  if (tokens.size() <= kShortestMatch) return best;
  const std::size_t end = tokens.size() - 1;
  int candidates = 0;
  for (std::uint32_t at = previous_[end]; at != kNowhere && candidates < kMostCandidates;
       at = previous_[at], ++candidates) {
    // Only what is longer than the best counts, so look at the far end of that first.
    if (best.length > 0 &&
        (at < best.length || tokens[at - best.length] != tokens[end - best.length]))
      continue;
    std::uint32_t length = 0;
    while (length < kLongestMatch && length <= at && tokens[at - length] == tokens[end - length]) {
      ++length;
    }
    if (length >= kShortestMatch && length > best.length) best = {at + 1, length};
    if (length == kLongestMatch) break;
  }
  return best;
}

void NgramIndex::Clear() {
  heads_.clear();
  previous_.clear();
}

void AppendContinuation(std::span<const TokenId> tokens, const Match& match, std::uint32_t count,
                        std::vector<TokenId>& drafts) {
  const std::size_t first = drafts.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = match.next + i;
    drafts.push_back(at < tokens.size() ? tokens[at] : drafts[first + at - tokens.size()]);
  }
}

}  // namespace tare::engine
