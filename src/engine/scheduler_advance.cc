// Many decode steps at once, for the simulator. What Plan and Commit do in a step that only decodes
// is little: some sequences take a page, some publish one. Here the steps are gone through with
// nothing but that, in the same order, so that pages get the same numbers and the cache evicts the
// same ones.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "engine/scheduler.h"
#include "kernels/kv_pages.h"

namespace tare::engine {
namespace {

constexpr std::uint32_t kPage = kernels::kTokensPerPage;

}  // namespace

std::uint32_t Scheduler::PagesTaken(const Sequence& s, std::uint32_t steps) {
  const std::uint32_t needed = (s.computed + steps + kPage - 1) / kPage;
  const auto has = static_cast<std::uint32_t>(s.pages.size());
  return needed > has ? needed - has : 0;
}

std::uint32_t Scheduler::DecodesAhead() const {
  // Rings recycle, compaction moves and deadlines expire between steps, and what drafts come to
  // depends on the tokens; those go one by one.
  if (running_.empty() || options_.ring || options_.upkeep.moves > 0 || !deadlines_.empty() ||
      options_.speculation.on()) {
    return 0;
  }
  if (!waiting_.empty() && !nothing_fits_) return 0;
  std::int64_t steps = options_.max_model_len;
  std::vector<const Sequence*> sequences;
  sequences.reserve(running_.size());
  for (const Order& order : running_) {
    const Sequence& s = sequences_.at(order.second);
    if (s.left() != 1 || !s.forks.empty()) return 0;
    // A page it publishes might be what a waiting sequence begins with.
    if (!waiting_.empty() && s.spec.use_prefix_cache) return 0;
    const std::size_t first = s.computed / kPage;
    if (first < s.pages.size() && !MayWrite(s.pages[first])) return 0;
    steps = std::min({steps, std::int64_t{s.spec.max_new_tokens} - s.generated - 1,
                      options_.max_model_len - static_cast<std::int64_t>(s.tokens.size()) - 1});
    if (steps <= 0) return 0;
    sequences.push_back(&s);
  }
  const auto fits = [&](std::int64_t count) {
    std::uint64_t taken = 0;
    for (const Sequence* s : sequences) taken += PagesTaken(*s, static_cast<std::uint32_t>(count));
    return taken <= pool_.available();
  };
  if (!fits(steps)) {
    std::int64_t most = 0;  // fits; `steps` does not
    while (steps - most > 1) {
      const std::int64_t middle = most + (steps - most) / 2;
      (fits(middle) ? most : steps) = middle;
    }
    steps = most;
  }
  return static_cast<std::uint32_t>(steps);
}

void Scheduler::AppendDecoded(Sequence& s, std::uint32_t count, TokenId token) const {
  s.tokens.insert(s.tokens.end(), count, token);
  s.generated += static_cast<int>(count);
  s.computed += count;
  if (s.spec.use_prefix_cache) ExtendKeys(s.spec.root, s.tokens, s.keys);
}

void Scheduler::AdvanceDecodes(std::uint32_t steps, TokenId token) {
  if (steps == 0) return;
  // By position within a page: all of one bucket reach a page's end in the same step.
  std::array<std::vector<std::pair<Sequence*, std::uint32_t>>, kPage> buckets;
  for (const Order& order : running_) {
    Sequence& s = sequences_.at(order.second);
    buckets[s.computed % kPage].emplace_back(&s, s.computed);
  }
  for (std::uint32_t step = 0; step < steps; ++step) {
    for (const auto& [s, before] : buckets[(kPage - step % kPage) % kPage]) {
      if (PagesTaken(*s, before + step + 1 - s->computed) == 0) continue;
      const std::optional<PageId> page = pool_.Allocate();
      TARE_CHECK(page.has_value());
      s->pages.push_back(*page);
    }
    // Memory given up by what ended before, the same pages as Plan would give back.
    stats_.pages_returned += pool_.ReturnSlabs(options_.upkeep.returns).size();
    for (const auto& [s, before] : buckets[(2 * kPage - 1 - step % kPage) % kPage]) {
      AppendDecoded(*s, before + step + 1 - s->computed, token);
      PublishFullPages(*s);
    }
  }
  for (const auto& bucket : buckets) {
    for (const auto& [s, before] : bucket) AppendDecoded(*s, before + steps - s->computed, token);
  }
  stats_.computed_tokens += std::uint64_t{steps} * running_.size();
}

}  // namespace tare::engine
