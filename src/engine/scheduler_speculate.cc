// Drafts of the scheduler: who gets how many, in which pages, and what became of them.
#include <algorithm>

#include "engine/scheduler.h"
#include "kernels/kv_pages.h"

namespace tare::engine {
namespace {

constexpr std::uint32_t kPage = kernels::kTokensPerPage;

std::uint32_t PagesFor(std::size_t tokens) {
  return static_cast<std::uint32_t>((tokens + kPage - 1) / kPage);
}

}  // namespace

void Scheduler::NoteStepTime(const StepPlan& plan, Nanos elapsed) {
  if (!plan.tokens.empty()) costs_.Note(static_cast<std::uint32_t>(plan.tokens.size()), elapsed);
}

std::uint32_t Scheduler::UsefulDrafts(const Sequence& s) const {
  // Row by row a token comes out; the last one allowed needs no draft. A full context can only come
  // about with the last token of a step, as everything that follows from it expects.
  const auto length = static_cast<std::int64_t>(s.tokens.size());
  const std::int64_t most = std::min({std::int64_t{options_.speculation.most},
                                      std::int64_t{s.spec.max_new_tokens} - s.generated - 1,
                                      std::int64_t{options_.max_model_len} - length - 1});
  return static_cast<std::uint32_t>(std::max<std::int64_t>(most, 0));
}

void Scheduler::Speculate() {
  StepSoFar step;
  std::vector<DraftCandidate> candidates;
  std::vector<Sequence*> sequences;
  for (const Order& order : running_) {
    Sequence& s = sequences_.at(order.second);
    step.rows += s.planned + s.refreshed;
    s.match = {};
    if (s.planned == 0 || s.planned != s.left()) continue;
    ++step.decoding;
    // After the first token: a prompt's end may still have to be shared with other choices.
    if (s.planned != 1 || s.generated == 0 || !s.spec.speculate || !s.forks.empty()) continue;
    s.index.Extend(s.tokens);
    s.match = s.index.Find(s.tokens);
    if (s.match.length == 0) continue;
    candidates.push_back({&s.acceptance, s.match.length, UsefulDrafts(s)});
    sequences.push_back(&s);
  }
  if (candidates.empty()) return;
  step.budget = static_cast<std::uint32_t>(options_.max_num_batched_tokens) - step.rows;
  if (options_.speculation.adaptive) {
    ChooseDrafts(step, costs_, candidates);
  } else {
    ChooseAllDrafts(step, candidates);
  }
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].chosen == 0) continue;
    Sequence& s = *sequences[i];
    AppendContinuation(s.tokens, s.match, EnsureDraftPages(s, candidates[i].chosen), s.drafts);
  }
}

std::uint32_t Scheduler::EnsureDraftPages(Sequence& s, std::uint32_t count) {
  const std::size_t tokens = s.computed + s.planned;
  while (s.pages.size() < PagesFor(tokens + count)) {
    // Each running sequence soon needs a page more; a guess must not make one give way.
    if (pool_.available() <= running_.size()) {
      return static_cast<std::uint32_t>(s.pages.size() * kPage - tokens);
    }
    s.pages.push_back(*pool_.Allocate());
  }
  return count;
}

void Scheduler::AddDrafts(const Sequence& s, StepPlan& plan) {
  PlannedSlice& slice = plan.slices.back();
  slice.num_drafts = static_cast<std::uint32_t>(s.drafts.size());
  slice.num_tokens += slice.num_drafts;
  plan.tokens.insert(plan.tokens.end(), s.drafts.begin(), s.drafts.end());
  const std::uint32_t pages = PagesFor(slice.start + slice.num_tokens);
  for (; slice.num_pages < pages; ++slice.num_pages) {
    plan.page_table.push_back(s.pages[slice.num_pages]);
  }
}

void Scheduler::NoteGuess(Sequence& s, std::uint32_t index, TokenId token) {
  if (s.match.length == 0) return;
  // The look-up goes on as long as it was right, whether there were drafts of it or not.
  const std::size_t at = s.match.next + index;
  const bool right = at < s.tokens.size() && s.tokens[at] == token;
  s.acceptance.Note(s.match.length + index, right);
  everybody_.Note(s.match.length + index, right);
}

void Scheduler::TruncatePages(Sequence& s) {
  while (s.pages.size() > PagesFor(s.computed)) {
    pool_.Release(s.pages.back());
    s.pages.pop_back();
  }
}

}  // namespace tare::engine
