#include "apps/tare/local_model_flags.h"

#include <charconv>

#include "base/files.h"
#include "base/units.h"

namespace tare::app {
namespace {

Result<kernels::KvType> ParseKvType(const std::string& text) {
  if (text == "bf16") return kernels::KvType::kBf16;
  if (text == "int8") return kernels::KvType::kInt8;
  if (text == "f32") return kernels::KvType::kF32;
  return FailParam("kv_dtype", "kv-dtype '{}' is not known; it may be bf16, int8 or f32", text);
}

Result<engine::ContextPolicy> ParseContextPolicy(const std::string& text) {
  if (text == "error") return engine::ContextPolicy::kError;
  if (text == "stop") return engine::ContextPolicy::kStop;
  if (text == "ring") return engine::ContextPolicy::kRing;
  return FailParam("context_policy",
                   "context-policy '{}' is not known; it may be error, stop or ring", text);
}

Result<engine::SpeculationOptions> ParseSpeculate(const std::string& text) {
  if (text == "auto") return engine::SpeculationOptions{.most = engine::kMostDrafts};
  if (text == "off") return engine::SpeculationOptions{};
  constexpr int kMost = static_cast<int>(engine::kMostDraftRows);
  int most = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), most);
  if (code != std::errc{} || end != text.data() + text.size() || most < 1 || most > kMost) {
    return FailParam("speculate",
                     "speculate '{}' is not known; it may be auto, off or a number from 1 to {}",
                     text, kMost);
  }
  return engine::SpeculationOptions{.most = most, .adaptive = false};
}

}  // namespace

void LocalModelFlags::AddTo(CLI::App& command) {
  command.add_option(
      "MODEL,--model", model,
      "A .gguf file or Hugging Face folder; smollm2 (or nothing): the default model");
  command.add_option("--dtype", dtype, "Compute linear layers in: auto, f32, bf16, int8, int4")
      ->capture_default_str();
  command.add_option("--threads", threads, "Threads to compute with (0: one per usable core)")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command.add_option("--isa", isa,
                     "Instruction set of the kernels: auto, scalar, avx2, avx512, amx (default: "
                     "TARE_ISA, else the best this machine has)");
  command
      .add_option("--max-model-len", max_model_len,
                  "Tokens of prompt and answer together (0: what the model was trained for)")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--max-num-seqs", max_num_seqs, "Sequences that share a step")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command
      .add_option("--max-num-batched-tokens", max_num_batched_tokens,
                  "Tokens computed in one step at most")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command
      .add_option("--prefill-chunk", prefill_chunk,
                  "Prompt tokens computed in a step beside running answers (0: no limit)")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command.add_option(
      "--kv-memory", kv_memory,
      "Memory for keys and values, e.g. 2GiB (default: what is left beside the weights)");
  command.add_option("--kv-dtype", kv_dtype, "Keys and values in: bf16, int8, f32")
      ->capture_default_str();
  command
      .add_option("--context-policy", context_policy,
                  "At the end of the context: error (refuse such requests), stop (end the answer), "
                  "ring (forget the oldest tokens)")
      ->capture_default_str();
  command.add_option("--packed-cache", packed_cache,
                     "Folder that keeps packed weights for faster starts; off: pack at every start "
                     "(default: packed/ in the user's cache)");
  command.add_flag("--no-prefix-cache", no_prefix_cache, "Compute every prompt in full");
  command
      .add_option("--speculate", speculate,
                  "Guess tokens that repeat earlier text and verify several in one step; answers "
                  "stay the same: auto (as many as pay), off, or always up to this many")
      ->capture_default_str();
}

Result<engine::LocalModelOptions> LocalModelFlags::ToOptions() const {
  engine::LocalModelOptions options;
  options.model = model;
  options.dtype = dtype;
  options.threads = threads;
  options.isa = isa;
  options.engine.max_model_len = max_model_len;
  options.engine.max_num_seqs = max_num_seqs;
  options.engine.max_num_batched_tokens = max_num_batched_tokens;
  options.engine.prefill_chunk = prefill_chunk;
  options.engine.prefix_cache = !no_prefix_cache;
  if (packed_cache.empty()) {
    // Without a cache directory (no HOME, read-only) models load all the same, only slower.
    if (auto cache = UserCacheDir()) options.packed_cache = *cache / "packed";
  } else if (packed_cache != "off") {
    options.packed_cache = packed_cache;
  }
  if (!kv_memory.empty()) {
    auto bytes = ParseByteSize(kv_memory);
    if (!bytes) return Context(bytes.error(), "--kv-memory");
    options.engine.kv_memory_bytes = *bytes;
  }
  TARE_TRY(options.engine.kv_type, ParseKvType(kv_dtype));
  TARE_TRY(options.engine.speculation, ParseSpeculate(speculate));
  TARE_TRY(options.engine.context_policy, ParseContextPolicy(context_policy));
  return options;
}

}  // namespace tare::app
