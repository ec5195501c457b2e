#include "engine/ngram_index.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <random>

namespace tare::engine {
namespace {

std::vector<TokenId> Ids(const std::vector<int>& values) {
  std::vector<TokenId> tokens;
  for (const int value : values) tokens.push_back(TokenId{value});
  return tokens;
}

TEST(NgramIndexTest, FindsTheLongestEarlierOccurrence) {
  NgramIndex index;
  //                            0  1  2  3  4  5  6  7  8  9 10
  const auto tokens = Ids({9, 1, 2, 3, 5, 2, 3, 6, 1, 2, 3});
  index.Extend(tokens);
  const Match match = index.Find(tokens);
  EXPECT_EQ(match.length, 3u);  // 1 2 3, not the later 2 3
  EXPECT_EQ(match.next, 4u);
  std::vector<TokenId> drafts;
  AppendContinuation(tokens, match, 3, drafts);
  EXPECT_EQ(drafts, Ids({5, 2, 3}));
}

TEST(NgramIndexTest, AContinuationPastTheEndRepeatsItself) {
  NgramIndex index;
  const auto tokens = Ids({1, 2, 3, 1, 2, 3, 1, 2});
  index.Extend(tokens);
  const Match match = index.Find(tokens);
  EXPECT_EQ(match.length, 5u);
  std::vector<TokenId> drafts;
  AppendContinuation(tokens, match, 7, drafts);
  EXPECT_EQ(drafts, Ids({3, 1, 2, 3, 1, 2, 3}));
}

TEST(NgramIndexTest, NothingInShortOrFreshText) {
  NgramIndex index;
  std::vector<TokenId> tokens;
  for (int i = 0; i < 600; ++i) {
    tokens.push_back(TokenId{i});
    index.Extend(tokens);
    EXPECT_EQ(index.Find(tokens).length, 0u);
  }
  index.Clear();
  index.Extend(Ids({7, 7, 7}));
  EXPECT_EQ(index.Find(Ids({7, 7, 7})).length, 2u);
}

// Against a search of every place, on texts of few and of many different tokens, indexed at once
// and token by token.
RC_GTEST_PROP(NgramIndexPropertyTest, AgreesWithASearchOfEverything, ()) {
  const int vocab = *rc::gen::element(2, 3, 20, 50000);
  std::mt19937 random(*rc::gen::arbitrary<unsigned>());
  const auto length = static_cast<std::size_t>(*rc::gen::inRange(1, 150));
  NgramIndex step_by_step;
  std::vector<TokenId> tokens;
  while (tokens.size() < length) {
    // Half of the text is copied from itself.
    const std::size_t copied = tokens.empty() || random() % 2 == 0 ? 0 : 1 + random() % 40;
    const std::size_t from = tokens.empty() ? 0 : random() % tokens.size();
    for (std::size_t i = 0; i < copied; ++i) tokens.push_back(tokens[from + i]);
    tokens.push_back(TokenId{static_cast<int>(random() % static_cast<unsigned>(vocab))});
    step_by_step.Extend(tokens);
  }
  NgramIndex at_once;
  at_once.Extend(tokens);
  const Match match = step_by_step.Find(tokens);
  const Match again = at_once.Find(tokens);
  RC_ASSERT(match.length == again.length && match.next == again.next);
  std::size_t longest = 0;
  const std::size_t end = tokens.size() - 1;
  for (std::size_t at = 0; at < end; ++at) {
    std::size_t common = 0;
    while (common <= at && tokens[at - common] == tokens[end - common]) ++common;
    longest = std::max(longest, common);
  }
  if (longest < kShortestMatch) {
    RC_ASSERT(match.length == 0u);
    return;
  }
  RC_ASSERT(match.length >= kShortestMatch && match.next <= end);
  for (std::size_t i = 0; i < match.length; ++i) {
    RC_ASSERT(tokens[match.next - 1 - i] == tokens[end - i]);
  }
  // With many candidates only the latest are looked at.
  if (tokens.size() <= 64) {
    RC_ASSERT(match.length == std::min<std::size_t>(longest, kLongestMatch));
  }
}

}  // namespace
}  // namespace tare::engine
