#include "gateway/prefix_index.h"

#include <gtest/gtest.h>

#include <string>

namespace tare::gateway {
namespace {

std::string Text(std::size_t bytes, char seed) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>('a' + (i * 7) % 23));
  if (!text.empty()) text.back() = seed;
  return text;
}

TEST(PrefixIndex, KnowsTheLongestCommonBeginning) {
  PrefixIndex index;
  const std::string system = Text(2048, 'x');
  index.Add(PrefixIndex::Blocks(1, {system, Text(600, 'q')}), 7);
  EXPECT_EQ(index.Known(PrefixIndex::Blocks(1, {system, Text(600, 'q')}), 7), 2560u);
  EXPECT_EQ(index.Known(PrefixIndex::Blocks(1, {system, "something else, and so on"}), 7), 2048u);
  EXPECT_EQ(index.Known(PrefixIndex::Blocks(1, {system}), 8), 0u) << "another upstream";
  EXPECT_EQ(index.Known(PrefixIndex::Blocks(2, {system}), 7), 0u) << "another model";
  EXPECT_EQ(index.Known(PrefixIndex::Blocks(1, {"short"}), 7), 0u);
}

TEST(PrefixIndex, AnAdaptersPromptsAreNotItsModels) {
  EXPECT_EQ(PrefixIndex::Salt("m", "sql"), PrefixIndex::Salt("m", "sql"));
  EXPECT_NE(PrefixIndex::Salt("m", "sql"), PrefixIndex::Salt("m", ""));
  EXPECT_NE(PrefixIndex::Salt("m", "sql"), PrefixIndex::Salt("m", "law"));
  EXPECT_NE(PrefixIndex::Salt("m", "sql"), PrefixIndex::Salt("msql", ""));
}

TEST(PrefixIndex, PartsAreOneText) {
  const std::string text = Text(3000, 'z');
  EXPECT_EQ(
      PrefixIndex::Blocks(1, {text}),
      PrefixIndex::Blocks(1, {text.substr(0, 100), text.substr(100, 1400), text.substr(1500)}));
}

TEST(PrefixIndex, ForgetsWhatWasUsedLongestAgo) {
  PrefixIndex index(4);
  const auto first = PrefixIndex::Blocks(1, {Text(1024, '1')});
  const auto second = PrefixIndex::Blocks(2, {Text(1024, '2')});
  index.Add(first, 0);
  index.Add(second, 0);
  index.Add(first, 0);  // used again
  index.Add(PrefixIndex::Blocks(3, {Text(1024, '3')}), 0);
  EXPECT_EQ(index.size(), 4u);
  EXPECT_EQ(index.Known(first, 0), 1024u);
  EXPECT_EQ(index.Known(second, 0), 0u);
}

TEST(PrefixIndex, BoundsItsWork) {
  EXPECT_EQ(PrefixIndex::Blocks(1, {Text(1 << 20, 'b')}).size(), PrefixIndex::kMaxBlocks);
}

}  // namespace
}  // namespace tare::gateway
