// Figures of a running engine for /metrics, /admin/startup and the load test's report.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "model/expert_use.h"

namespace tare::engine {

// How long each stage of getting ready took; 0 for a stage that did not happen.
struct StartupTimes {
  Nanos map_weights{};               // open, validate and map the checkpoint
  Nanos load_weights{};              // convert and pack (or map the packed cache)
  Nanos load_text{};                 // tokenizer and chat template
  Nanos touch_pages{};               // KV memory reserved and first slabs touched
  Nanos warm_kernels{};              // first steps, so that no request pays for them
  Nanos total{};                     // start of loading to ready
  bool weights_from_cache = false;   // mapped as an earlier start had packed them
  std::size_t touched_kv_bytes = 0;  // by touch_pages
  std::size_t huge_kv_bytes = 0;     // of them in huge pages: 0 when the system grants none
};

// Upper bounds, in seconds, of the step duration histogram; one more bucket holds the rest.
inline constexpr std::array<double, 14> kStepSecondsBounds = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0};

// Where the tokens of a mixture of experts went since the start.
struct ExpertStats {
  std::vector<std::uint64_t> tokens;  // [experts], summed over layers; empty: the model has none
  std::uint64_t weight_bytes = 0;     // of all experts of all layers
  int first_layer = 0;
  std::vector<model::ExpertBalance> layers;  // from first_layer on
  // Experts whose weights were read, and experts there are: summed over layers and steps.
  std::uint64_t touched = 0;
  std::uint64_t present = 0;
  double touched_share = 0.0;  // the same of the last step, as a share
};
ExpertStats Summarize(const model::ExpertUse& use);

struct EngineStats {
  // Now.
  int running = 0;  // sequences taking part in steps
  int waiting = 0;  // sequences not admitted yet, or preempted
  std::uint32_t pages_total = 0;
  std::uint32_t pages_used = 0;    // owned by running sequences
  std::uint32_t pages_cached = 0;  // kept only for the prefix cache; reclaimed when needed
  std::size_t page_bytes = 0;
  double unused_slot_share = 0.0;  // token slots without a token, of those in used pages
  double stranded_share = 0.0;     // free pages in partly used slabs, of pages held from the OS
  bool draining = false;

  // Since the start.
  std::uint64_t requests_accepted = 0;
  std::uint64_t requests_finished = 0;
  std::uint64_t requests_cancelled = 0;
  std::uint64_t requests_failed = 0;
  std::uint64_t prompt_tokens = 0;     // of accepted requests
  std::uint64_t prefix_queries = 0;    // tokens looked up in the prefix cache
  std::uint64_t prefix_hits = 0;       // of them found
  std::uint64_t computed_tokens = 0;   // rows computed: prefill, decode, recomputation
  std::uint64_t generated_tokens = 0;  // sampled and kept
  std::uint64_t preemptions = 0;
  std::uint64_t pages_copied = 0;     // copy-on-write
  std::uint64_t pages_moved = 0;      // compaction
  std::uint64_t pages_returned = 0;   // memory given back to the operating system
  std::uint64_t pages_recycled = 0;   // ring contexts
  std::uint64_t draft_turns = 0;      // turns of a sequence that had drafts
  std::uint64_t drafted_tokens = 0;   // drafts verified
  std::uint64_t accepted_drafts = 0;  // of them right: turns of a sequence saved
  std::uint64_t steps = 0;
  double step_seconds = 0.0;    // sum over all steps
  double upkeep_seconds = 0.0;  // of it: pages copied, moved and given back
  double longest_upkeep_seconds = 0.0;
  std::array<std::uint64_t, kStepSecondsBounds.size() + 1> step_seconds_histogram{};

  ExpertStats experts;
  StartupTimes startup;
};

}  // namespace tare::engine
