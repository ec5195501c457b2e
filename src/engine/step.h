// The seam between policy and computation: a Scheduler makes a StepPlan, an Executor runs it.
// Plans are plain data, so the live engine and the simulator share the same scheduler object.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace tare::model {
class LoraAdapter;
}

namespace tare::engine {

// Consecutive tokens of one sequence. A ring context may have two in a step: its pinned tokens,
// computed again for their new positions, and then the next token.
struct PlannedSlice {
  SequenceId sequence{};
  std::uint32_t first_token = 0;  // index of its first token in StepPlan::tokens
  std::uint32_t num_tokens = 0;   // tokens computed in this step
  std::uint32_t start = 0;        // position of the first of them = tokens already in the KV pages
  std::uint32_t first_page = 0;   // index of its first page in StepPlan::page_table
  std::uint32_t num_pages = 0;    // enough for start + num_tokens
  std::uint32_t rotation = 0;     // position of a token less its index in the pages (ring contexts)
  bool wants_logits = false;      // the last of its tokens is followed by sampling
  // Null: the base alone. Only handed on; whoever submitted the sequence keeps it alive.
  const model::LoraAdapter* adapter = nullptr;
  // Of its tokens the last ones that are guesses (speculation.h). They want logits too, each, as
  // does the token before them; only what is sampled shows which of them count.
  std::uint32_t num_drafts = 0;

  std::uint32_t logit_rows() const { return wants_logits ? 1 + num_drafts : 0; }
};

struct PageCopy {
  PageId from{};
  PageId to{};
};

struct StepPlan {
  std::vector<PlannedSlice> slices;
  std::vector<TokenId> tokens;     // all slices' tokens, in order of slices
  std::vector<PageId> page_table;  // all slices' pages
  std::vector<PageCopy> copies;    // made before the step computes (copy-on-write, compaction)
  std::vector<PageId> discarded;   // pages whose memory may go back to the operating system

  bool empty() const { return slices.empty() && copies.empty() && discarded.empty(); }
};

struct StepResult {
  Nanos elapsed{};          // real for the CPU, predicted for the simulator
  std::span<float> logits;  // [logit rows of all slices, vocab]; the sampler's to change,
                            // valid until the executor's next Run; empty in the simulator
  std::uint32_t vocab = 0;
  // Of `elapsed`, before computing: pages copied and moved, and pages given back.
  Nanos copying{};
  Nanos returning{};
};

}  // namespace tare::engine
