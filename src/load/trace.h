// Recorded traffic: when requests came and how long they were, from the traces people publish.
//
//   Azure LLM inference CSV   TIMESTAMP,ContextTokens,GeneratedTokens
//   Mooncake JSONL            {"timestamp": ms, "input_length", "output_length", "hash_ids": [...]}
//
// A Mooncake request names its prompt by blocks of 512 tokens: equal ids mean equal text, so two
// requests share a prefix exactly as far as their ids agree. TracePrompts rebuilds that: the words
// of a block follow from its id, and a target with a prefix cache sees the original's hit rate.
// Thread safety: immutable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "load/prompts.h"

namespace tare::load {

struct TraceRequest {
  Nanos at{0};  // after the first request
  int input_tokens = 0;
  int output_tokens = 0;
  std::vector<std::uint64_t> blocks;  // hash ids of kTraceBlockTokens tokens each; may be empty
};

inline constexpr int kTraceBlockTokens = 512;

struct Trace {
  std::string name;
  std::vector<TraceRequest> requests;  // by time

  double mean_rate() const;
  double gap_cv() const;  // of the times between requests
  // Share of input tokens that an endless prefix cache would find (block-wise); 0 without ids.
  double ideal_prefix_hit_rate() const;
};

// As the JSONL that ParseTrace reads, times in milliseconds to the nanosecond.
std::string FormatTrace(const Trace& trace);

// The requests of [from, from + length), their times counted from `from`; length 0: all after it.
Result<Trace> CutTrace(Trace trace, Nanos from, Nanos length);

// By content, whatever the file is called. `name` appears in messages.
Result<Trace> ParseTrace(std::string_view content, std::string name);
Result<Trace> LoadTrace(const std::filesystem::path& path);
// The trace an arrival spec names: a file, cut to the spec's window; or a folder of ServeGen
// clients (or one NAME-trace.csv of them), drawn by `seed`.
Result<Trace> LoadTrace(const ArrivalSpec& spec, std::uint64_t seed);

// The prompts of a run and, when it replays one, its trace.
struct PromptsAndTrace {
  std::unique_ptr<PromptSource> prompts;
  std::shared_ptr<const Trace> trace;
};
Result<PromptsAndTrace> MakePrompts(const ArrivalSpec& arrival, const WorkloadSpec& workload,
                                    const TokenCalibration& calibration);

// Request i asks what the trace's request i asked. Lengths are cut at `max_input` and `max_output`
// tokens when those are above 0.
std::unique_ptr<PromptSource> MakeTracePrompts(std::shared_ptr<const Trace> trace,
                                               std::uint64_t seed, TokenCalibration calibration,
                                               int max_input, int max_output);

}  // namespace tare::load
