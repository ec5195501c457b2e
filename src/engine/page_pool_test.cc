#include "engine/page_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>

namespace tare::engine {
namespace {

PageKey Key(std::uint64_t n) { return {n, n * 0x9E3779B97F4A7C15}; }

TEST(PagePoolTest, EvictsTheLeastRecentlyUsedCachedPage) {
  PagePool pool({.pages = 3, .pages_per_slab = 2});
  std::vector<PageId> pages;
  for (std::uint64_t i = 0; i < 3; ++i) {
    pages.push_back(*pool.Allocate());
    pool.Publish(pages.back(), Key(i));
  }
  EXPECT_FALSE(pool.Allocate().has_value());
  for (const PageId page : pages) pool.Release(page);
  EXPECT_EQ(pool.cached(), 3u);
  pool.Retain(*pool.Find(Key(0)));  // used again, then released: now the newest
  pool.Release(pages[0]);
  const PageId taken = *pool.Allocate();
  EXPECT_EQ(taken, pages[1]);
  EXPECT_FALSE(pool.Find(Key(1)).has_value());
  EXPECT_TRUE(pool.Find(Key(0)).has_value());
  pool.CheckInvariants();
}

TEST(PagePoolTest, TheFirstPagePublishedUnderAKeyStays) {
  PagePool pool({.pages = 2});
  const PageId first = *pool.Allocate(), second = *pool.Allocate();
  pool.Publish(first, Key(7));
  pool.Publish(second, Key(7));
  EXPECT_EQ(pool.Find(Key(7)), first);
  EXPECT_FALSE(pool.published(second));
  pool.Release(second);
  EXPECT_EQ(pool.cached(), 0u);
}

TEST(PagePoolTest, CompactionEmptiesSlabsAndReturnsThem) {
  PagePool pool({.pages = 64, .pages_per_slab = 8, .reserve_slabs = 1});
  std::vector<PageId> pages;
  for (int i = 0; i < 64; ++i) pages.push_back(*pool.Allocate());
  EXPECT_EQ(pool.resident(), 64u);
  std::vector<PageId> kept;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (i % 8 == 3) {
      kept.push_back(pages[i]);
    } else {
      pool.Release(pages[i]);
    }
  }
  EXPECT_DOUBLE_EQ(pool.StrandedShare(), 56.0 / 64.0);
  EXPECT_TRUE(pool.ReturnSlabs(100).empty());
  int rounds = 0;
  while (true) {
    const auto moves = pool.Compact(2);
    EXPECT_LE(moves.size(), 2u);
    if (moves.empty()) break;
    for (const PageCopy& move : moves) std::replace(kept.begin(), kept.end(), move.from, move.to);
    pool.CheckInvariants();
    ASSERT_LT(++rounds, 100);
  }
  EXPECT_EQ(pool.ReturnSlabs(5).size(), 5u);  // of the first slab
  EXPECT_EQ(pool.resident(), 64u);
  EXPECT_EQ(pool.ReturnSlabs(100).size(), 43u);  // 7 slabs empty, one kept in reserve
  EXPECT_EQ(pool.resident(), 16u);
  EXPECT_DOUBLE_EQ(pool.StrandedShare(), 0.0);
  for (const PageId page : kept) pool.Release(page);
  pool.CheckInvariants();
  EXPECT_EQ(pool.available(), 64u);
}

// Random histories against a model that only counts.
TEST(PagePoolTest, RandomHistoriesKeepItsBooks) {
  EXPECT_TRUE(rc::check([](const std::vector<std::pair<std::uint8_t, std::uint16_t>>& history) {
    PagePool pool({.pages = 29, .pages_per_slab = 4, .reserve_slabs = 2});
    std::map<PageId, std::uint32_t> owned;
    const auto pick = [&](std::uint16_t argument) {
      auto it = owned.begin();
      std::advance(it, argument % owned.size());
      return it->first;
    };
    for (const auto& [action, argument] : history) {
      switch (action % 8) {
        case 0:
        case 1:
        case 2:
          if (const auto page = pool.Allocate()) {
            RC_ASSERT(!owned.contains(*page));
            owned[*page] = 1;
          } else {
            RC_ASSERT(owned.size() == 29u);
          }
          break;
        case 3:
        case 4:
          if (!owned.empty()) {
            const PageId page = pick(argument);
            pool.Release(page);
            if (--owned[page] == 0) owned.erase(page);
          }
          break;
        case 5:
          if (!owned.empty()) pool.Publish(pick(argument), Key(argument % 16));
          break;
        case 6:
          if (const auto page = pool.Find(Key(argument % 16))) {
            pool.Retain(*page);
            ++owned[*page];
          }
          break;
        case 7:
          for (const PageCopy& move : pool.Compact(argument % 5)) {
            if (const auto it = owned.find(move.from); it != owned.end()) {
              RC_ASSERT(!owned.contains(move.to));
              owned[move.to] = it->second;
              owned.erase(it);
            }
          }
          for (const PageId page : pool.ReturnSlabs(argument % 7)) {
            RC_ASSERT(!owned.contains(page));
          }
          break;
      }
      pool.CheckInvariants();
      RC_ASSERT(pool.used() == owned.size());
      for (const auto& [page, references] : owned) RC_ASSERT(pool.references(page) == references);
    }
  }));
}

}  // namespace
}  // namespace tare::engine
