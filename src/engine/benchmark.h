// Measures an engine by itself, without HTTP: prefill and decode at given batch sizes.
//
// Prompts are made of random tokens, different for every sequence. Decode is timed between the
// moment all sequences of the batch have begun to answer and the moment the first one ends, so
// every timed step has exactly `batch` rows.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "kernels/limits.h"
#include "kernels/matmul.h"

namespace tare::engine {

struct BenchmarkPlan {
  int prompt_tokens = 512;
  int gen_tokens = 128;
  std::vector<int> batches = {1, 8, 32};  // each at most the engine's max_num_seqs
  int repeats = 3;                        // the median counts
  std::uint64_t weight_bytes = 0;         // read by every step, but for experts nobody chose
  std::uint64_t kv_bytes_per_token = 0;
  std::uint64_t active_parameters = 0;  // multiplied once per token
};

enum class Phase { kPrefill, kDecode };
const char* ToString(Phase phase);

struct BenchmarkResult {
  Phase phase = Phase::kPrefill;
  int batch = 0;
  int prompt_tokens = 0;
  int gen_tokens = 0;
  double tokens_per_s = 0.0;  // all sequences together
  double spread = 0.0;        // (fastest - slowest) / median of the repeats
  double bytes_per_s = 0.0;   // weights once per step, and the keys and values attention reads
  double ops_per_s = 0.0;     // two per active parameter and token
};

// Both phases for every batch size. `done` is told each result as it comes.
Result<std::vector<BenchmarkResult>> RunBenchmark(
    Engine& engine, const BenchmarkPlan& plan,
    const std::function<void(const BenchmarkResult&)>& done);

// What a machine allows for weights of one type and size.
struct Ceiling {
  double ops_per_s = 0.0;    // the fastest multiply its instructions offer for the type
  double bytes_per_s = 0.0;  // reading from where the weights fit: last-level cache or memory
};
Ceiling CeilingFor(const kernels::MachineLimits& limits, kernels::WeightType type,
                   std::uint64_t weight_bytes);
// The share of the nearer ceiling that a result reaches: at 1 it could not be faster.
double LimitShare(const BenchmarkResult& result, const Ceiling& ceiling);

}  // namespace tare::engine
