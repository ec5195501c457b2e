// Decides what each step computes: which sequences, how many of their tokens, in which pages.
//
// Pure policy: no I/O, no threads, no randomness, and no clock but the times it is told. The same
// history of calls gives the same plans, so the live engine and the simulator share this object.
//
// The loop around it:   Submit/Cancel ...  plan = Plan(now);  run it;  Commit(plan, sampled, now)
//
// A sequence is a row of tokens of which the first `computed` have their keys and values in pages.
// Every step it runs in computes some of the rest; when none is left, the next token is sampled and
// becomes the new rest. Decoding is thus the case of one token left, a chunked prompt the case of
// many, and a preempted sequence simply has computed nothing again.
//
// Order. Every sequence has an urgency, a point in time: its arrival, for the batch tier
// `batch_tier_ageing` later, and never later than its deadline. Smaller goes first, always. As the
// urgency never changes and time passes, nothing that arrives later than a sequence's urgency can
// overtake it: no starvation.
//
// A step is filled with, in this order: the tokens of decoding sequences, so that they keep their
// pace; the next chunks of prompts begun; prompts newly admitted. Beside decoding sequences prompts
// get only `prefill_chunk` tokens, or each new prompt would hold up all answers for the time of a
// large step. When pages run out, the least urgent sequence is preempted: its pages are released
// (the full ones stay findable in the prefix cache) and it waits to be computed again. The most
// urgent one can always take all pages, and Submit refuses what would not fit alone, so everything
// admitted ends.
//
// Drafts. What is left of the budget when everybody has had their share may go to guesses of what
// follows the tokens of decoding sequences (speculation.h). They only take pages nobody is about to
// need; pages of guesses that were wrong are given back at once.
//
// Ring contexts. When a sequence fills its window, the oldest eighth of it after the pinned pages
// is forgotten: those pages leave its table, so attention no longer sees them, and the rest moves
// up. A key is rotated by the position its token had, and rotation only tells distances, so the
// rest stays valid as it is; only the pinned tokens, now nearer, need their keys rotated further.
// Keys are not turned in place, which would lose precision each time: the pinned tokens are
// computed again, `recycled` positions later, which gives exactly their shifted keys. Attention
// thus always sees the distances 0 to the window's length, which the model was trained for.
//
// Invariants, checked by the property tests: the pool's pages are each owned as often as tables
// name them; a plan has at most max_num_batched_tokens tokens of max_num_seqs sequences; no page
// written by a slice is named by another table.
//
// Thread safety: none; one thread owns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "engine/generate.h"
#include "engine/page_key.h"
#include "engine/page_pool.h"
#include "engine/speculation.h"
#include "engine/step.h"

namespace tare::engine {

// Pages a step may move and give back, so that it is not held up for long.
struct UpkeepLimits {
  std::uint32_t moves = 0;  // 0: never
  std::uint32_t returns = ~std::uint32_t{0};
};

struct SchedulerOptions {
  PoolOptions pool;
  int max_num_seqs = 32;
  int max_num_batched_tokens = 512;  // at least max_num_seqs
  int prefill_chunk = 0;  // prompt tokens of a step in which answers go on too; 0: no limit
  int max_model_len = 0;  // tokens; the pool must hold as many
  bool prefix_cache = true;
  bool ring = false;  // at max_model_len recycle the oldest page instead of ending
  int batch_window_requests = 32;
  Nanos batch_window{};  // 0: an idle engine starts at once
  Nanos batch_tier_ageing = std::chrono::seconds(10);
  double compaction_threshold = 0.35;  // share of stranded pages above which pages are moved
  UpkeepLimits upkeep;
  SpeculationOptions speculation;
};

struct SequenceSpec {
  SequenceId id{};  // never used before
  std::vector<TokenId> prompt;
  int max_new_tokens = 1;
  int pinned_tokens = 0;  // ring only: first tokens that are never recycled
  Tier tier = Tier::kInteractive;
  std::optional<Nanos> deadline;
  PageKey root;               // RootKey of the salt and the adapter
  std::vector<PageKey> keys;  // of the prompt's full pages (ExtendKeys); completed when short
  bool use_prefix_cache = true;
  bool speculate = true;
  const model::LoraAdapter* adapter = nullptr;  // for its slices (step.h)
  // A sequence with the same prompt, submitted before, whose pages this one takes over when they
  // are computed (n > 1).
  std::optional<SequenceId> leader;
};

// What came out for a row that wanted logits.
struct SampledToken {
  TokenId token{};
  bool stop = false;  // the sequence ends here; the token is not part of it
};

struct EndedSequence {
  SequenceId id{};
  FinishReason reason = FinishReason::kStop;  // kStop or kLength
};

struct SchedulerStats {
  int running = 0;
  int waiting = 0;
  std::uint32_t pages_used = 0;
  std::uint32_t pages_cached = 0;
  double unused_slot_share = 0.0;
  double stranded_share = 0.0;
  std::uint64_t prefix_queries = 0;  // tokens
  std::uint64_t prefix_hits = 0;     // tokens
  std::uint64_t computed_tokens = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t pages_copied = 0;
  std::uint64_t pages_moved = 0;
  std::uint64_t pages_returned = 0;
  std::uint64_t pages_recycled = 0;
  std::uint64_t draft_turns = 0;      // turns of a sequence that had drafts
  std::uint64_t drafted_tokens = 0;   // drafts verified
  std::uint64_t accepted_drafts = 0;  // of them right: turns saved
};

class Scheduler {
 public:
  static Result<Scheduler> Create(const SchedulerOptions& options);

  // Queues a sequence. Refuses what could never run: an empty prompt, or one that leaves no room
  // for an answer.
  Status Submit(SequenceSpec spec, Nanos now);
  // Forgets a sequence in any state, also between Plan and Commit. False when it is not there.
  bool Cancel(SequenceId id);

  // The next step; empty when there is nothing to do before WakeAt(). Every plan, also an empty
  // one, is followed by its Commit before the next Plan.
  StepPlan Plan(Nanos now);
  // `sampled` has one entry per row of logits, in order of slices. Of a slice with drafts the
  // entries count up to the first that is not its draft, or ends the sequence.
  std::vector<EndedSequence> Commit(const StepPlan& plan, std::span<const SampledToken> sampled);

  // Simulation runs through long stretches in which the running sequences only decode. DecodesAhead
  // is how many of the coming steps, if nothing is submitted or cancelled, would plan exactly one
  // token of every running sequence, end none of them and do nothing else; it may be too low, never
  // too high. AdvanceDecodes leaves everything, page numbers included, as that many rounds of Plan
  // and Commit would that sample `token` for every sequence (scheduler_property_test.cc holds one
  // against the other). `steps` is at most DecodesAhead(). Not between Plan and Commit.
  std::uint32_t DecodesAhead() const;
  void AdvanceDecodes(std::uint32_t steps, TokenId token);

  // How long the step of a plan took to compute; what drafts pay for is judged by it.
  void NoteStepTime(const StepPlan& plan, Nanos elapsed);

  // Sequences dropped by Plan since the last call because their deadline had passed.
  std::vector<SequenceId> TakeExpired() { return std::exchange(expired_, {}); }
  // When Plan may have something to do although nothing was submitted: the end of the batch window
  // or the next deadline.
  std::optional<Nanos> WakeAt() const;

  bool idle() const { return sequences_.empty(); }
  std::size_t running() const { return running_.size(); }
  std::uint32_t pages_used() const { return pool_.used(); }
  // Tokens of a sequence's prompt found in the prefix cache when it was first admitted.
  int CachedTokens(SequenceId id) const;
  SchedulerStats Stats() const;
  // The engine sets them from measured times (upkeep_pace.h).
  void SetUpkeepLimits(const UpkeepLimits& limits) { options_.upkeep = limits; }

  // For tests: stops the process when an invariant is broken.
  void CheckInvariants() const;

 private:
  struct Sequence {
    SequenceSpec spec;
    Nanos arrival{};
    Nanos urgency{};
    std::vector<TokenId> tokens;  // prompt and answer; without recycled ones
    std::vector<PageKey> keys;    // of full pages of `tokens`
    std::vector<PageId> pages;
    std::uint32_t computed = 0;   // tokens whose K and V are in pages
    std::uint32_t published = 0;  // pages offered to the prefix cache
    std::uint32_t planned = 0;    // tokens of the plan not yet committed
    std::uint32_t recycled = 0;   // tokens dropped after the pinned ones (ring)
    std::uint32_t stale = 0;      // pages of pinned tokens still to be computed again (ring)
    std::uint32_t refreshed = 0;  // of them, tokens the plan computes
    int generated = 0;
    int cached_tokens = -1;  // -1: not admitted yet
    bool running = false;
    bool expects_fork = false;      // waits for its leader's prompt
    std::vector<SequenceId> forks;  // sequences that wait for this one's prompt
    std::optional<PageCopy> copy;   // copy-on-write of the plan
    NgramIndex index;               // of `tokens`, when it may have drafts
    Acceptance acceptance = Acceptance::OfOne();
    Match match;                  // what its next token was looked up from
    std::vector<TokenId> drafts;  // of the plan
    std::uint32_t left() const { return static_cast<std::uint32_t>(tokens.size()) - computed; }
  };
  using Order = std::pair<Nanos, SequenceId>;
  static Order OrderOf(const Sequence& s) { return {s.urgency, s.spec.id}; }

  explicit Scheduler(const SchedulerOptions& options);

  Sequence* FindSequence(SequenceId id);
  void Expire(Nanos now);
  void Compact(StepPlan& plan);
  // scheduler_speculate.cc: gives drafts to decoding sequences of the plan.
  void Speculate();
  // How many drafts a sequence has a use for.
  std::uint32_t UsefulDrafts(const Sequence& s) const;
  // Pages for `count` drafts after the planned token, as many as can be had; how many drafts fit.
  std::uint32_t EnsureDraftPages(Sequence& s, std::uint32_t count);
  // What the `index`-th token sampled in this step says about the look-up.
  void NoteGuess(Sequence& s, std::uint32_t index, TokenId token);
  // Gives back pages of drafts that were wrong.
  void TruncatePages(Sequence& s);
  bool WindowOpen(Nanos now) const;  // an idle engine still gathers requests
  void PlanRunning(bool decoding);
  void Admit();
  // What a waiting sequence finds in the prefix cache.
  struct PrefixHit {
    std::vector<PageId> pages;
    bool pending = false;  // the next page is being computed by a running sequence
  };
  PrefixHit FindPrefix(const Sequence& s) const;
  // How many of the pages found are worth taking when all of `s` shall have room, and how many
  // pages that takes out of the available ones; nothing when there is no room.
  std::optional<std::size_t> PagesToTake(const Sequence& s, const PrefixHit& hit,
                                         std::uint32_t& wanted) const;
  bool TryAdmit(Sequence& s, PrefixHit hit);
  // What an admission leaves to those that run already.
  std::uint32_t SparePages() const;
  // Makes the least urgent batch-tier sequence give way to a more urgent interactive one when that
  // helps `s` to `pages` more pages and a place.
  void MakeRoomFor(const Sequence& s, std::uint32_t pages);
  // Plans `count` tokens of a running sequence; preempts less urgent ones, at last itself, when
  // pages run out. False when it preempted itself.
  bool Extend(Sequence& s, std::uint32_t count);
  // Plans the pinned tokens of a ring whose positions have moved, as far as the budget goes.
  bool Refresh(Sequence& s);
  bool MayWrite(PageId page) const;
  // Pages a decoding sequence takes in its next `steps` steps.
  static std::uint32_t PagesTaken(const Sequence& s, std::uint32_t steps);
  // Gives a decoding sequence `count` tokens more to compute, as if sampled.
  void AppendDecoded(Sequence& s, std::uint32_t count, TokenId token) const;
  bool EnsurePages(Sequence& s, std::uint32_t count);
  std::uint32_t PinnedPages(const Sequence& s) const;
  // Forgets the oldest part of a full ring.
  void Recycle(Sequence& s);
  void Preempt(Sequence& s);
  void Fork(Sequence& leader);
  void PublishFullPages(Sequence& s);
  void ReleasePages(Sequence& s);
  void ForgetPending(Sequence& s);
  void Remove(Sequence& s);
  static void AddSlice(const Sequence& s, std::uint32_t start, std::uint32_t count, StepPlan& plan);
  static void AddDrafts(const Sequence& s, StepPlan& plan);
  // Takes in what was sampled for a sequence. The reason when it ended.
  std::optional<FinishReason> TakeSampled(Sequence& s, std::span<const SampledToken> sampled);
  void Materialise(StepPlan& plan);
  // Pages running sequences will need for the tokens they have.
  std::uint32_t PromisedPages() const;

  SchedulerOptions options_;
  PagePool pool_;
  std::map<SequenceId, Sequence> sequences_;
  std::set<Order> running_;
  std::set<Order> waiting_;
  std::set<std::pair<Nanos, SequenceId>> deadlines_;
  std::unordered_map<PageKey, SequenceId> pending_;  // keys of prompt pages being computed
  std::vector<PageId> release_after_plan_;           // sources of copies
  std::vector<SequenceId> expired_;
  std::uint32_t budget_ = 0;  // tokens left in the plan being made
  bool preempted_ = false;    // in the plan being made
  // The last plan only decoded and found no room for those waiting. Decoding never makes room, so
  // until something ends, comes or goes, no plan will.
  bool nothing_fits_ = false;
  StepCosts costs_;
  Acceptance everybody_ = Acceptance::OfMany();
  SchedulerStats stats_;
};

}  // namespace tare::engine
