// Who owns which KV page: reference counts, the prefix cache and slabs. Pure bookkeeping; the
// pages' numbers are in kernels::KvPages.
//
// A page is in one of three states:
//   free    nobody's;
//   used    at least one sequence refers to it;
//   cached  no sequence refers to it, but it is full, has a key, and may serve a later prompt.
// Allocate takes a free page, else the least recently used cached one.
//
// Pages come in slabs of up to 64 neighbours, the unit in which memory is held from and returned
// to the operating system. Allocation fills the fullest slab first, so that others can empty; a
// compaction moves pages out of the emptiest.
//
// Thread safety: none; the scheduler owns it. All choices are deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/types.h"
#include "engine/page_key.h"
#include "engine/step.h"

namespace tare::engine {

struct PoolOptions {
  std::uint32_t pages = 0;
  std::uint32_t pages_per_slab = 64;  // 1 to 64
  std::uint32_t reserve_slabs = 1;    // wholly free slabs kept instead of returned
};

class PagePool {
 public:
  explicit PagePool(const PoolOptions& options);

  // A page with one reference, or nothing when every page is used.
  std::optional<PageId> Allocate();
  void Retain(PageId page);
  // Without a reference left, a published page becomes cached (as the most recently used) and any
  // other page free.
  void Release(PageId page);

  std::uint32_t references(PageId page) const { return At(page).references; }
  bool published(PageId page) const { return At(page).published; }

  // Makes a used, full page findable. When another page has the key already, that one stays.
  void Publish(PageId page, const PageKey& key);
  // The page with this key; the caller retains it if it wants it.
  std::optional<PageId> Find(const PageKey& key) const;

  // Moves up to `limit` pages out of the emptiest slabs; the caller copies their numbers and
  // changes every table that names them. Empty when no slab can be emptied.
  std::vector<PageCopy> Compact(std::uint32_t limit);
  // Wholly free slabs beyond the reserve leave the pool's resident memory: up to `limit` of their
  // pages, for the caller to give back. The rest of a slab comes with the next calls, unless it is
  // wanted again before.
  std::vector<PageId> ReturnSlabs(std::uint32_t limit);

  std::uint32_t pages() const { return static_cast<std::uint32_t>(pages_.size()); }
  std::uint32_t used() const { return pages() - free_ - cached_; }
  std::uint32_t cached() const { return cached_; }
  // Pages Allocate can hand out: free and cached ones.
  std::uint32_t available() const { return free_ + cached_; }
  // Pages whose memory is held from the operating system.
  std::uint32_t resident() const { return resident_; }
  // Free pages in partly used slabs, as a share of resident ones: memory that is neither in use
  // nor returnable.
  double StrandedShare() const;

  // Recounts everything; stops the process on a contradiction. For tests.
  void CheckInvariants() const;

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Page {
    std::uint32_t references = 0;
    bool published = false;
    PageKey key;
    std::uint32_t older = kNone;  // neighbours in the list of cached pages
    std::uint32_t newer = kNone;
  };
  struct Slab {
    std::uint64_t free_mask = 0;
    std::uint32_t size = 0;
    std::uint32_t free = 0;
    std::uint32_t returned = 0;  // of its pages, the first ones, while the slab is on its way out
    bool resident = false;
  };

  const Page& At(PageId page) const { return pages_[ToInt(page)]; }
  Page& At(PageId page) { return pages_[ToInt(page)]; }
  std::uint32_t SlabOf(std::uint32_t page) const { return page / options_.pages_per_slab; }
  // A free page of this slab, marked as taken.
  std::uint32_t TakeFrom(std::uint32_t slab);
  void GiveBack(std::uint32_t page);
  // Keeps partial_, empty_ and absent_ in step with a slab's counts.
  void Unlist(std::uint32_t slab);
  void List(std::uint32_t slab);
  void LinkNewest(std::uint32_t page);
  void Unlink(std::uint32_t page);
  void EvictOldest();
  void Move(std::uint32_t from, std::uint32_t to);

  PoolOptions options_;
  std::vector<Page> pages_;
  std::vector<Slab> slabs_;
  std::unordered_map<PageKey, std::uint32_t> index_;
  // (free pages, slab) of slabs with some pages free and some not; fewest free first.
  std::set<std::pair<std::uint32_t, std::uint32_t>> partial_;
  std::set<std::uint32_t> empty_;   // wholly free, resident
  std::set<std::uint32_t> absent_;  // wholly free, not resident
  std::uint32_t oldest_ = kNone;    // cached pages, by time of last use
  std::uint32_t newest_ = kNone;
  std::uint32_t free_ = 0;
  std::uint32_t cached_ = 0;
  std::uint32_t resident_ = 0;
};

}  // namespace tare::engine
