#include "engine/page_pool.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace tare::engine {

PagePool::PagePool(const PoolOptions& options) : options_(options), pages_(options.pages) {
  TARE_CHECK(options.pages_per_slab >= 1 && options.pages_per_slab <= 64);
  for (std::uint32_t first = 0; first < options.pages; first += options.pages_per_slab) {
    Slab slab;
    slab.size = std::min(options.pages_per_slab, options.pages - first);
    slab.free = slab.size;
    slab.free_mask = slab.size == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << slab.size) - 1;
    const auto index = static_cast<std::uint32_t>(slabs_.size());
    slab.resident = index < options.reserve_slabs;
    if (slab.resident) resident_ += slab.size;
    slabs_.push_back(slab);
    List(index);
  }
  free_ = options.pages;
}

void PagePool::Unlist(std::uint32_t slab) {
  partial_.erase({slabs_[slab].free, slab});
  empty_.erase(slab);
  absent_.erase(slab);
}

void PagePool::List(std::uint32_t slab) {
  const Slab& s = slabs_[slab];
  if (s.free == 0) return;
  if (s.free < s.size) {
    partial_.insert({s.free, slab});
  } else if (s.resident) {
    empty_.insert(slab);
  } else {
    absent_.insert(slab);
  }
}

std::uint32_t PagePool::TakeFrom(std::uint32_t slab) {
  Slab& s = slabs_[slab];
  TARE_CHECK(s.free > 0);
  Unlist(slab);
  const auto bit = static_cast<std::uint32_t>(std::countr_zero(s.free_mask));
  s.free_mask &= s.free_mask - 1;
  --s.free;
  --free_;
  s.returned = 0;
  if (!s.resident) {
    s.resident = true;
    resident_ += s.size;
  }
  List(slab);
  return slab * options_.pages_per_slab + bit;
}

void PagePool::GiveBack(std::uint32_t page) {
  const std::uint32_t slab = SlabOf(page);
  Unlist(slab);
  slabs_[slab].free_mask |= std::uint64_t{1} << (page % options_.pages_per_slab);
  ++slabs_[slab].free;
  ++free_;
  List(slab);
}

std::optional<PageId> PagePool::Allocate() {
  if (free_ == 0) {
    if (cached_ == 0) return std::nullopt;
    EvictOldest();
  }
  const std::uint32_t slab = !partial_.empty() ? partial_.begin()->second
                             : !empty_.empty() ? *empty_.begin()
                                               : *absent_.begin();
  const std::uint32_t page = TakeFrom(slab);
  pages_[page] = Page{};
  pages_[page].references = 1;
  return PageId{page};
}

void PagePool::Retain(PageId id) {
  Page& page = At(id);
  TARE_CHECK(page.references > 0 || page.published);
  if (page.references == 0) {
    Unlink(ToInt(id));
    --cached_;
  }
  ++page.references;
}

void PagePool::Release(PageId id) {
  Page& page = At(id);
  TARE_CHECK(page.references > 0);
  if (--page.references > 0) return;
  if (page.published) {
    LinkNewest(ToInt(id));
    ++cached_;
  } else {
    GiveBack(ToInt(id));
  }
}

void PagePool::Publish(PageId id, const PageKey& key) {
  Page& page = At(id);
  TARE_CHECK(page.references > 0);
  if (page.published || !index_.emplace(key, ToInt(id)).second) return;
  page.published = true;
  page.key = key;
}

std::optional<PageId> PagePool::Find(const PageKey& key) const {
  const auto it = index_.find(key);
  if (it == index_.end()) return std::nullopt;
  return PageId{it->second};
}

void PagePool::LinkNewest(std::uint32_t page) {
  pages_[page].older = newest_;
  pages_[page].newer = kNone;
  (newest_ == kNone ? oldest_ : pages_[newest_].newer) = page;
  newest_ = page;
}

void PagePool::Unlink(std::uint32_t page) {
  Page& p = pages_[page];
  (p.older == kNone ? oldest_ : pages_[p.older].newer) = p.newer;
  (p.newer == kNone ? newest_ : pages_[p.newer].older) = p.older;
  p.older = p.newer = kNone;
}

void PagePool::EvictOldest() {
  const std::uint32_t page = oldest_;
  TARE_CHECK(page != kNone);
  Unlink(page);
  --cached_;
  index_.erase(pages_[page].key);
  pages_[page].published = false;
  GiveBack(page);
}

void PagePool::Move(std::uint32_t from, std::uint32_t to) {
  Page& source = pages_[from];
  Page& target = pages_[to];
  target = source;
  if (source.published) index_[source.key] = to;
  if (source.references == 0) {
    (source.older == kNone ? oldest_ : pages_[source.older].newer) = to;
    (source.newer == kNone ? newest_ : pages_[source.newer].older) = to;
  }
  source = Page{};
  GiveBack(from);
}

std::vector<PageCopy> PagePool::Compact(std::uint32_t limit) {
  std::vector<PageCopy> moves;
  while (moves.size() < limit && partial_.size() >= 2) {
    const std::uint32_t victim = partial_.rbegin()->second;
    std::uint32_t room = 0;
    for (const auto& [free, slab] : partial_) room += slab == victim ? 0 : free;
    std::uint32_t left = slabs_[victim].size - slabs_[victim].free;
    if (room < left) break;
    const std::uint32_t first = victim * options_.pages_per_slab;
    for (std::uint32_t i = 0; i < slabs_[victim].size && left > 0 && moves.size() < limit; ++i) {
      if ((slabs_[victim].free_mask >> i) & 1) continue;
      // The fullest slab is never the victim: the victim is the emptiest, and there are two.
      auto fullest = partial_.begin();
      if (fullest->second == victim) ++fullest;
      const std::uint32_t to = TakeFrom(fullest->second);
      Move(first + i, to);
      moves.push_back({PageId{first + i}, PageId{to}});
      --left;
    }
  }
  return moves;
}

std::vector<PageId> PagePool::ReturnSlabs(std::uint32_t limit) {
  std::vector<PageId> pages;
  while (pages.size() < limit && empty_.size() > options_.reserve_slabs) {
    const std::uint32_t slab = *empty_.rbegin();
    Slab& s = slabs_[slab];
    while (pages.size() < limit && s.returned < s.size) {
      pages.push_back(PageId{slab * options_.pages_per_slab + s.returned++});
    }
    if (s.returned < s.size) break;
    Unlist(slab);
    s.returned = 0;
    s.resident = false;
    resident_ -= s.size;
    List(slab);
  }
  return pages;
}

double PagePool::StrandedShare() const {
  if (resident_ == 0) return 0.0;
  std::uint32_t stranded = 0;
  for (const auto& [free, slab] : partial_) stranded += free;
  return static_cast<double>(stranded) / resident_;
}

void PagePool::CheckInvariants() const {
  std::uint32_t free = 0, cached = 0, resident = 0;
  for (std::uint32_t i = 0; i < slabs_.size(); ++i) {
    const Slab& slab = slabs_[i];
    TARE_CHECK(static_cast<std::uint32_t>(std::popcount(slab.free_mask)) == slab.free);
    TARE_CHECK(slab.resident || slab.free == slab.size);
    TARE_CHECK(slab.returned == 0 || (slab.resident && slab.free == slab.size));
    TARE_CHECK(partial_.count({slab.free, i}) == (slab.free > 0 && slab.free < slab.size));
    TARE_CHECK(empty_.count(i) == (slab.free == slab.size && slab.resident));
    TARE_CHECK(absent_.count(i) == (slab.free == slab.size && !slab.resident));
    free += slab.free;
    resident += slab.resident ? slab.size : 0;
  }
  for (std::uint32_t i = 0; i < pages_.size(); ++i) {
    const Page& page = pages_[i];
    const bool is_free = (slabs_[SlabOf(i)].free_mask >> (i % options_.pages_per_slab) & 1) != 0;
    TARE_CHECK(is_free == (page.references == 0 && !page.published));
    if (page.references == 0 && page.published) ++cached;
    if (page.published) TARE_CHECK(index_.at(page.key) == i);
  }
  std::uint32_t listed = 0;
  for (std::uint32_t i = oldest_; i != kNone; i = pages_[i].newer, ++listed) {
    TARE_CHECK(pages_[i].references == 0 && pages_[i].published);
    TARE_CHECK(pages_[i].newer != kNone || newest_ == i);
  }
  TARE_CHECK(free == free_ && cached == cached_ && resident == resident_ && listed == cached_);
}

}  // namespace tare::engine
