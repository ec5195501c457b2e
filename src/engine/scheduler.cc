#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/kv_pages.h"

namespace tare::engine {
namespace {

constexpr std::uint32_t kPage = kernels::kTokensPerPage;

// Waiting sequences whose prefix is being computed are passed over; looking at more of them than
// this in one step would cost more than it wins.
constexpr int kMaxPassedOver = 64;

// Pages left free for each running sequence when another is admitted, but of all pages at most a
// share (never less than one each): room to grow until some end, or the newcomer would only be
// preempted and computed again. Full pool of 16,384 pages, sequences of 4,096 tokens half of which
// are prompt (engine_bench --experiment pages, 2026-12-01): one page 76.8 sequences at a time and
// 21 % of the tokens computed twice, four 76.0 and 6 %, eight 74.7 and 2 %.
constexpr std::uint32_t kSparePages = 4;
constexpr std::uint32_t kSpareShare = 32;

std::uint32_t PagesFor(std::size_t tokens) {
  return static_cast<std::uint32_t>((tokens + kPage - 1) / kPage);
}

}  // namespace

Result<Scheduler> Scheduler::Create(const SchedulerOptions& options) {
  if (options.max_num_seqs < 1) {
    return FailParam("max_num_seqs", "max_num_seqs is {}; it must be at least 1",
                     options.max_num_seqs);
  }
  if (options.max_num_batched_tokens < options.max_num_seqs) {
    return FailParam("max_num_batched_tokens",
                     "max_num_batched_tokens is {}; it must be at least max_num_seqs ({}), so that "
                     "every sequence can decode in every step",
                     options.max_num_batched_tokens, options.max_num_seqs);
  }
  if (options.ring &&
      options.max_num_batched_tokens < options.max_num_seqs + static_cast<int>(kPage)) {
    return FailParam("max_num_batched_tokens",
                     "max_num_batched_tokens is {}; with ring contexts it must be at least "
                     "max_num_seqs + {} ({})",
                     options.max_num_batched_tokens, kPage,
                     options.max_num_seqs + static_cast<int>(kPage));
  }
  const int least = options.ring ? 4 * static_cast<int>(kPage) : 2;
  if (options.max_model_len < least) {
    return FailParam("max_model_len", "max_model_len is {}; it must be at least {}",
                     options.max_model_len, least);
  }
  if (options.pool.pages < PagesFor(static_cast<std::size_t>(options.max_model_len))) {
    return FailParam("kv_memory",
                     "the KV memory holds {} tokens, fewer than one sequence may have "
                     "(max_model_len {}): give more KV memory or a smaller max_model_len",
                     std::uint64_t{options.pool.pages} * kPage, options.max_model_len);
  }
  return Scheduler(options);
}

Scheduler::Scheduler(const SchedulerOptions& options) : options_(options), pool_(options.pool) {
  // A ring window is whole pages, since whole pages are recycled.
  if (options_.ring) options_.max_model_len -= options_.max_model_len % static_cast<int>(kPage);
}

Scheduler::Sequence* Scheduler::FindSequence(SequenceId id) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

Status Scheduler::Submit(SequenceSpec spec, Nanos now) {
  TARE_CHECK(!sequences_.contains(spec.id));
  if (spec.prompt.empty()) return FailParam("prompt", "the prompt is empty");
  if (spec.prompt.size() >= static_cast<std::size_t>(options_.max_model_len)) {
    return FailParam("prompt",
                     "the prompt has {} tokens; with the context length of {} tokens it may "
                     "have at most {}: shorten it",
                     spec.prompt.size(), options_.max_model_len, options_.max_model_len - 1);
  }
  if (spec.max_new_tokens < 1) {
    return FailParam("max_tokens", "max_tokens is {}; it must be at least 1", spec.max_new_tokens);
  }
  Sequence s;
  s.arrival = now;
  s.urgency = now + (spec.tier == Tier::kBatch ? options_.batch_tier_ageing : Nanos{});
  if (spec.deadline) s.urgency = std::min(s.urgency, *spec.deadline);
  s.acceptance = everybody_.BeginningLikeThis();
  s.tokens = spec.prompt;
  s.keys = std::move(spec.keys);
  if (options_.prefix_cache && spec.use_prefix_cache) {
    ExtendKeys(spec.root, s.tokens, s.keys);
  } else {
    spec.use_prefix_cache = false;
  }
  if (spec.leader) {
    Sequence* leader = FindSequence(*spec.leader);
    if (leader != nullptr && leader->generated == 0) {
      leader->forks.push_back(spec.id);
      s.expects_fork = true;
    }
  }
  if (spec.deadline) deadlines_.insert({*spec.deadline, spec.id});
  nothing_fits_ = false;
  s.spec = std::move(spec);
  waiting_.insert(OrderOf(s));
  sequences_.emplace(s.spec.id, std::move(s));
  return {};
}

bool Scheduler::Cancel(SequenceId id) {
  Sequence* s = FindSequence(id);
  if (s == nullptr) return false;
  Remove(*s);
  return true;
}

void Scheduler::Remove(Sequence& s) {
  for (const SequenceId id : s.forks) {
    if (Sequence* fork = FindSequence(id)) fork->expects_fork = false;
  }
  ReleasePages(s);
  nothing_fits_ = false;
  (s.running ? running_ : waiting_).erase(OrderOf(s));
  if (s.spec.deadline) deadlines_.erase({*s.spec.deadline, s.spec.id});
  sequences_.erase(s.spec.id);
}

void Scheduler::ReleasePages(Sequence& s) {
  ForgetPending(s);
  // Last page first: of a cached prefix the end is then evicted before the beginning, without
  // which it could not be found.
  while (!s.pages.empty()) {
    pool_.Release(s.pages.back());
    s.pages.pop_back();
  }
}

void Scheduler::ForgetPending(Sequence& s) {
  for (std::size_t page = s.published; page < s.keys.size(); ++page) {
    const auto it = pending_.find(s.keys[page]);
    if (it != pending_.end() && it->second == s.spec.id) pending_.erase(it);
  }
}

void Scheduler::Expire(Nanos now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const SequenceId id = deadlines_.begin()->second;
    expired_.push_back(id);
    Remove(*FindSequence(id));
  }
}

void Scheduler::Compact(StepPlan& plan) {
  if (options_.upkeep.moves == 0 || pool_.StrandedShare() <= options_.compaction_threshold) {
    return;
  }
  plan.copies = pool_.Compact(options_.upkeep.moves);
  if (plan.copies.empty()) return;
  std::unordered_map<std::uint32_t, PageId> moved;
  for (const PageCopy& move : plan.copies) {
    // A page may move twice when its new place is emptied in turn.
    for (auto& [from, to] : moved) {
      if (to == move.from) to = move.to;
    }
    moved.emplace(ToInt(move.from), move.to);
  }
  for (const Order& order : running_) {
    for (PageId& page : sequences_.at(order.second).pages) {
      if (const auto it = moved.find(ToInt(page)); it != moved.end()) page = it->second;
    }
  }
  stats_.pages_moved += plan.copies.size();
}

StepPlan Scheduler::Plan(Nanos now) {
  Expire(now);
  StepPlan plan;
  Compact(plan);
  budget_ = static_cast<std::uint32_t>(options_.max_num_batched_tokens);
  preempted_ = false;
  PlanRunning(true);
  const bool decoding = budget_ < static_cast<std::uint32_t>(options_.max_num_batched_tokens);
  if (decoding && options_.prefill_chunk > 0) {
    budget_ = std::min(budget_, static_cast<std::uint32_t>(options_.prefill_chunk));
  }
  // What moving pages leaves of the time for upkeep, giving them back may use.
  const double left = plan.copies.empty()
                          ? 1.0
                          : 1.0 - static_cast<double>(plan.copies.size()) / options_.upkeep.moves;
  const std::uint32_t before_prompts = budget_;
  PlanRunning(false);
  const std::size_t waiting = waiting_.size();
  if (!preempted_ && !WindowOpen(now)) Admit();
  nothing_fits_ = !preempted_ && budget_ == before_prompts && budget_ > 0 &&
                  waiting_.size() == waiting && plan.copies.empty();
  if (options_.speculation.on()) Speculate();
  Materialise(plan);
  plan.discarded = pool_.ReturnSlabs(static_cast<std::uint32_t>(left * options_.upkeep.returns));
  stats_.pages_returned += plan.discarded.size();
  return plan;
}

bool Scheduler::WindowOpen(Nanos now) const {
  if (!running_.empty() || options_.batch_window <= Nanos{}) return false;
  const std::optional<Nanos> end = WakeAt();
  return end && now < *end &&
         waiting_.size() < static_cast<std::size_t>(options_.batch_window_requests);
}

std::optional<Nanos> Scheduler::WakeAt() const {
  std::optional<Nanos> wake;
  if (!deadlines_.empty()) wake = deadlines_.begin()->first;
  if (running_.empty() && !waiting_.empty() && options_.batch_window > Nanos{}) {
    Nanos oldest = Nanos::max();
    int seen = 0;
    for (const Order& order : waiting_) {
      if (++seen > options_.batch_window_requests) break;
      oldest = std::min(oldest, sequences_.at(order.second).arrival);
    }
    const Nanos end = oldest + options_.batch_window;
    wake = wake ? std::min(*wake, end) : end;
  }
  return wake;
}

void Scheduler::PlanRunning(bool decoding) {
  const std::vector<Order> order(running_.begin(), running_.end());
  for (const Order& entry : order) {
    if (budget_ == 0) return;
    if (!running_.contains(entry)) continue;  // preempted by one before it
    Sequence& s = sequences_.at(entry.second);
    if ((s.left() == 1) != decoding) continue;
    Extend(s, std::min(s.left(), budget_));
  }
}

bool Scheduler::Extend(Sequence& s, std::uint32_t count) {
  const auto ready = [&] {
    if (s.stale > 0 && s.refreshed == 0 && !Refresh(s)) return false;
    // The next token must not see pinned keys at their old positions.
    if (s.refreshed / kPage < s.stale) {
      count = 0;
      return true;
    }
    count = std::min(count, budget_);
    return EnsurePages(s, count);
  };
  while (!ready()) {
    Sequence& victim = sequences_.at(running_.rbegin()->second);
    const bool itself = &victim == &s;
    Preempt(victim);
    if (itself) return false;
  }
  s.planned = count;
  budget_ -= count;
  return true;
}

bool Scheduler::MayWrite(PageId page) const {
  // References kept only until a copy has been made do not count: copies come before all writes.
  const auto copied = std::count(release_after_plan_.begin(), release_after_plan_.end(), page);
  return !pool_.published(page) && pool_.references(page) - copied == 1;
}

bool Scheduler::EnsurePages(Sequence& s, std::uint32_t count) {
  const std::size_t first = s.computed / kPage;
  if (first < s.pages.size() && !MayWrite(s.pages[first])) {
    const std::optional<PageId> page = pool_.Allocate();
    if (!page) return false;
    s.copy = PageCopy{s.pages[first], *page};
    // The source must keep its numbers until the copy has been made.
    release_after_plan_.push_back(s.pages[first]);
    s.pages[first] = *page;
  }
  while (s.pages.size() < PagesFor(s.computed + count)) {
    const std::optional<PageId> page = pool_.Allocate();
    if (!page) return false;
    s.pages.push_back(*page);
  }
  return true;
}

std::uint32_t Scheduler::PinnedPages(const Sequence& s) const {
  // At least the first page stays: attention leans on the first tokens whatever they say
  // (StreamingLLM, arXiv 2309.17453). At most half the window, or nothing would be left to recycle.
  const std::uint32_t window = static_cast<std::uint32_t>(options_.max_model_len) / kPage;
  return std::clamp(PagesFor(static_cast<std::size_t>(std::max(s.spec.pinned_tokens, 0))), 1u,
                    window / 2);
}

void Scheduler::Recycle(Sequence& s) {
  const std::uint32_t window = static_cast<std::uint32_t>(options_.max_model_len) / kPage;
  const std::uint32_t pinned = PinnedPages(s);
  // Each time the pinned tokens are computed again, so pages go in groups.
  const std::uint32_t count = std::max(window / 8, 1u);
  const auto page = s.pages.begin() + pinned;
  for (std::uint32_t i = 0; i < count; ++i) pool_.Release(page[i]);
  s.pages.erase(page, page + count);
  const auto token = s.tokens.begin() + pinned * kPage;
  s.tokens.erase(token, token + count * kPage);
  s.computed -= count * kPage;
  s.recycled += count * kPage;
  s.stale = pinned;
  s.index.Clear();  // indices of tokens have changed
  // From here on the sequence's pages depend on tokens that are gone; no prompt can match them.
  s.keys.clear();
  s.published = 0;
  s.spec.use_prefix_cache = false;
  stats_.pages_recycled += count;
}

bool Scheduler::Refresh(Sequence& s) {
  const std::uint32_t pinned = PinnedPages(s);
  const std::uint32_t count = std::min(s.stale, budget_ / kPage);
  for (std::uint32_t i = pinned - s.stale; i < pinned - s.stale + count; ++i) {
    // A page others still read is left to them; its numbers are of no use here.
    if (MayWrite(s.pages[i])) continue;
    const std::optional<PageId> page = pool_.Allocate();
    if (!page) return false;
    pool_.Release(s.pages[i]);
    s.pages[i] = *page;
  }
  s.refreshed = count * kPage;
  budget_ -= s.refreshed;
  return true;
}

void Scheduler::Preempt(Sequence& s) {
  budget_ += s.planned + s.refreshed;
  s.planned = 0;
  s.refreshed = 0;
  s.stale = 0;
  s.copy.reset();
  s.match = {};
  ReleasePages(s);
  s.computed = 0;
  s.published = 0;
  s.recycled = 0;  // what is left will be computed as one text
  running_.erase(OrderOf(s));
  s.running = false;
  waiting_.insert(OrderOf(s));
  preempted_ = true;
  ++stats_.preemptions;
}

std::uint32_t Scheduler::PromisedPages() const {
  std::uint32_t pages = 0;
  for (const Order& order : running_) {
    const Sequence& s = sequences_.at(order.second);
    const std::uint32_t needed = PagesFor(s.tokens.size());
    if (needed > s.pages.size()) pages += needed - static_cast<std::uint32_t>(s.pages.size());
  }
  return pages;
}

Scheduler::PrefixHit Scheduler::FindPrefix(const Sequence& s) const {
  PrefixHit hit;
  if (!s.spec.use_prefix_cache) return hit;
  for (const PageKey& key : s.keys) {
    const std::optional<PageId> page = pool_.Find(key);
    if (!page) {
      hit.pending = pending_.contains(key);
      break;
    }
    hit.pages.push_back(*page);
  }
  return hit;
}

void Scheduler::Admit() {
  int passed_over = 0;
  for (auto it = waiting_.begin(); it != waiting_.end() && budget_ > 0;) {
    Sequence& s = sequences_.at(it->second);
    ++it;  // admission takes s out of waiting_
    PrefixHit hit = s.expects_fork ? PrefixHit{{}, true} : FindPrefix(s);
    if (hit.pending) {
      if (++passed_over > kMaxPassedOver) return;
      continue;
    }
    // Nothing less urgent may pass one that finds no room, or a long prompt would starve.
    if (!TryAdmit(s, std::move(hit))) return;
  }
}

std::uint32_t Scheduler::SparePages() const {
  const auto running = static_cast<std::uint32_t>(running_.size());
  return std::max(running, std::min(kSparePages * running, pool_.pages() / kSpareShare));
}

std::optional<std::size_t> Scheduler::PagesToTake(const Sequence& s, const PrefixHit& hit,
                                                  std::uint32_t& wanted) const {
  const std::uint32_t spare = SparePages();
  const std::uint32_t needed = PagesFor(s.tokens.size());
  const auto fits = [&](std::size_t taken, std::uint32_t copies) {
    std::uint32_t revived = 0;  // cached pages that stop being available
    for (std::size_t i = 0; i < taken; ++i) revived += pool_.references(hit.pages[i]) == 0;
    wanted = needed - static_cast<std::uint32_t>(taken) + copies + revived;
    return wanted + PromisedPages() + spare <= pool_.available();
  };
  // At least the last token is computed, for its logits. When it is in a cached page, that page is
  // copied, which needs one more page than it saves work: worth it only when pages are plenty.
  const std::size_t found = hit.pages.size();
  const bool whole = found * kPage == s.tokens.size();
  if (fits(found, whole ? 1 : 0)) return found;
  if (whole && fits(found - 1, 0)) return found - 1;
  return std::nullopt;
}

bool Scheduler::TryAdmit(Sequence& s, PrefixHit hit) {
  const auto place = [&] {
    return running_.size() < static_cast<std::size_t>(options_.max_num_seqs);
  };
  std::uint32_t wanted = 0;
  std::optional<std::size_t> found = PagesToTake(s, hit, wanted);
  if (!found || !place()) {
    MakeRoomFor(s, wanted);
    hit = FindPrefix(s);  // what gave way may have pushed pages out of the cache
    found = PagesToTake(s, hit, wanted);
    if (!found || !place()) return false;
  }
  const std::size_t taken = *found;

  for (std::size_t i = 0; i < taken; ++i) pool_.Retain(hit.pages[i]);
  s.pages.assign(hit.pages.begin(), hit.pages.begin() + static_cast<std::ptrdiff_t>(taken));
  s.published = static_cast<std::uint32_t>(taken);
  s.computed = static_cast<std::uint32_t>(std::min(taken * kPage, s.tokens.size() - 1));
  if (s.spec.use_prefix_cache) {
    stats_.prefix_queries += s.tokens.size();
    stats_.prefix_hits += s.computed;
    for (std::size_t page = taken; page < s.keys.size(); ++page) {
      pending_.emplace(s.keys[page], s.spec.id);
    }
  }
  if (s.cached_tokens < 0) s.cached_tokens = static_cast<int>(s.computed);
  waiting_.erase(OrderOf(s));
  s.running = true;
  running_.insert(OrderOf(s));
  Extend(s, std::min(s.left(), budget_));
  return true;
}

void Scheduler::MakeRoomFor(const Sequence& s, std::uint32_t pages) {
  if (s.spec.tier != Tier::kInteractive) return;
  const auto gives_way = [&](const Order& order) {
    return OrderOf(s) < order && sequences_.at(order.second).spec.tier == Tier::kBatch;
  };
  // First see whether it would help at all.
  std::uint32_t gained = 0;
  bool place = running_.size() < static_cast<std::size_t>(options_.max_num_seqs);
  for (auto it = running_.rbegin(); it != running_.rend() && gives_way(*it); ++it) {
    place = true;
    for (const PageId page : sequences_.at(it->second).pages) {
      gained += pool_.references(page) == 1;
    }
  }
  if (!place || pages > pool_.available() + gained) return;
  while (!running_.empty() && gives_way(*running_.rbegin()) &&
         (running_.size() >= static_cast<std::size_t>(options_.max_num_seqs) ||
          pages + PromisedPages() + SparePages() > pool_.available())) {
    Preempt(sequences_.at(running_.rbegin()->second));
  }
}

void Scheduler::AddSlice(const Sequence& s, std::uint32_t start, std::uint32_t count,
                         StepPlan& plan) {
  PlannedSlice slice;
  slice.sequence = s.spec.id;
  slice.first_token = static_cast<std::uint32_t>(plan.tokens.size());
  slice.num_tokens = count;
  slice.start = start;
  slice.first_page = static_cast<std::uint32_t>(plan.page_table.size());
  slice.num_pages = PagesFor(start + count);
  slice.rotation = s.recycled;
  slice.adapter = s.spec.adapter;
  const auto first = s.tokens.begin() + start;
  plan.tokens.insert(plan.tokens.end(), first, first + count);
  plan.page_table.insert(plan.page_table.end(), s.pages.begin(), s.pages.begin() + slice.num_pages);
  plan.slices.push_back(slice);
}

void Scheduler::Materialise(StepPlan& plan) {
  for (const Order& order : running_) {
    Sequence& s = sequences_.at(order.second);
    if (s.copy) {
      plan.copies.push_back(*s.copy);
      ++stats_.pages_copied;
      s.copy.reset();
    }
    if (s.refreshed > 0) {
      AddSlice(s, (PinnedPages(s) - s.stale) * kPage, s.refreshed, plan);
    }
    if (s.planned > 0) {
      AddSlice(s, s.computed, s.planned, plan);
      plan.slices.back().wants_logits = s.planned == s.left();
      if (!s.drafts.empty()) AddDrafts(s, plan);
    }
  }
  for (const PageId page : release_after_plan_) pool_.Release(page);
  release_after_plan_.clear();
}

std::vector<EndedSequence> Scheduler::Commit(const StepPlan& plan,
                                             std::span<const SampledToken> sampled) {
  std::vector<EndedSequence> ended;
  std::size_t next = 0;
  for (const PlannedSlice& slice : plan.slices) {
    const auto results = sampled.subspan(next, slice.logit_rows());
    next += results.size();
    Sequence* found = FindSequence(slice.sequence);
    if (found == nullptr) continue;  // cancelled while the step ran
    Sequence& s = *found;
    s.stale -= s.refreshed / kPage;
    stats_.computed_tokens += s.refreshed + s.planned + s.drafts.size();
    s.refreshed = 0;
    s.computed += s.planned;
    s.planned = 0;
    PublishFullPages(s);
    if (results.empty()) continue;
    if (!s.forks.empty()) Fork(s);
    if (const auto reason = TakeSampled(s, results)) {
      ended.push_back({s.spec.id, *reason});
      Remove(s);
    }
  }
  TARE_CHECK(next == sampled.size());
  return ended;
}

std::optional<FinishReason> Scheduler::TakeSampled(Sequence& s,
                                                   std::span<const SampledToken> sampled) {
  const std::vector<TokenId> drafts = std::exchange(s.drafts, {});
  if (!drafts.empty()) {
    ++stats_.draft_turns;
    stats_.drafted_tokens += drafts.size();
  }
  for (std::uint32_t i = 0; i < sampled.size(); ++i) {
    if (i > 0) {
      // The draft before this row was right: it is a token like any other, and computed.
      ++s.computed;
      ++stats_.accepted_drafts;
      PublishFullPages(s);
    }
    if (sampled[i].stop) return FinishReason::kStop;
    const TokenId token = sampled[i].token;
    NoteGuess(s, i, token);
    s.tokens.push_back(token);
    ++s.generated;
    if (s.spec.use_prefix_cache) ExtendKeys(s.spec.root, s.tokens, s.keys);
    bool full = s.tokens.size() >= static_cast<std::size_t>(options_.max_model_len);
    if (full && options_.ring) {
      Recycle(s);
      full = false;
    }
    if (s.generated >= s.spec.max_new_tokens || full) return FinishReason::kLength;
    if (i < drafts.size() && drafts[i] != token) break;
  }
  if (!drafts.empty()) TruncatePages(s);
  return std::nullopt;
}

void Scheduler::PublishFullPages(Sequence& s) {
  if (!s.spec.use_prefix_cache) return;
  for (; s.published < s.computed / kPage; ++s.published) {
    pool_.Publish(s.pages[s.published], s.keys[s.published]);
    const auto it = pending_.find(s.keys[s.published]);
    if (it != pending_.end() && it->second == s.spec.id) pending_.erase(it);
  }
}

void Scheduler::Fork(Sequence& leader) {
  for (const SequenceId id : std::exchange(leader.forks, {})) {
    Sequence* found = FindSequence(id);
    if (found == nullptr) continue;
    Sequence& s = *found;
    s.expects_fork = false;
    nothing_fits_ = false;
    // Without a place it waits, and finds the full pages in the prefix cache later.
    if (running_.size() >= static_cast<std::size_t>(options_.max_num_seqs)) continue;
    const std::uint32_t pages = PagesFor(s.tokens.size());
    s.pages.assign(leader.pages.begin(), leader.pages.begin() + pages);
    for (const PageId page : s.pages) pool_.Retain(page);
    s.computed = static_cast<std::uint32_t>(s.tokens.size()) - 1;
    s.published = static_cast<std::uint32_t>(s.tokens.size()) / kPage;
    if (s.cached_tokens < 0) s.cached_tokens = static_cast<int>(s.computed);
    waiting_.erase(OrderOf(s));
    s.running = true;
    running_.insert(OrderOf(s));
  }
}

int Scheduler::CachedTokens(SequenceId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? 0 : std::max(0, it->second.cached_tokens);
}

SchedulerStats Scheduler::Stats() const {
  SchedulerStats stats = stats_;
  stats.running = static_cast<int>(running_.size());
  stats.waiting = static_cast<int>(waiting_.size());
  stats.pages_used = pool_.used();
  stats.pages_cached = pool_.cached();
  stats.stranded_share = pool_.StrandedShare();
  // Only a sequence's last pages have unused slots; shared ones are split between their owners.
  double unused = 0.0;
  for (const Order& order : running_) {
    const Sequence& s = sequences_.at(order.second);
    for (std::size_t i = s.computed / kPage; i < s.pages.size(); ++i) {
      const std::size_t filled = i == s.computed / kPage ? s.computed % kPage : 0;
      unused += static_cast<double>(kPage - filled) / pool_.references(s.pages[i]);
    }
  }
  if (pool_.used() > 0) stats.unused_slot_share = unused / (double{kPage} * pool_.used());
  return stats;
}

void Scheduler::CheckInvariants() const {
  pool_.CheckInvariants();
  std::vector<std::uint32_t> owners(pool_.pages(), 0);
  for (const auto& [id, s] : sequences_) {
    TARE_CHECK(s.running == running_.contains(OrderOf(s)));
    TARE_CHECK(s.running != waiting_.contains(OrderOf(s)));
    TARE_CHECK(s.running || (s.pages.empty() && s.computed == 0 && s.planned == 0));
    TARE_CHECK(s.running || (s.stale == 0 && s.refreshed == 0 && s.recycled == 0));
    TARE_CHECK(s.computed < s.tokens.size() || s.planned == 0);
    TARE_CHECK(s.pages.size() >= PagesFor(s.computed));
    TARE_CHECK(s.tokens.size() <= static_cast<std::size_t>(options_.max_model_len));
    for (const PageId page : s.pages) ++owners[ToInt(page)];
  }
  TARE_CHECK(running_.size() + waiting_.size() == sequences_.size());
  TARE_CHECK(running_.size() <= static_cast<std::size_t>(options_.max_num_seqs));
  for (std::uint32_t page = 0; page < pool_.pages(); ++page) {
    TARE_CHECK(owners[page] == pool_.references(PageId{page}));
  }
  for (const auto& [key, id] : pending_) TARE_CHECK(sequences_.contains(id));
}

}  // namespace tare::engine
