#include "model/memory_need.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "base/files.h"
#include "base/text.h"
#include "model/parameter_count.h"

namespace tare::model {
namespace {

// Rows and sequences of a full step with the engine's default limits.
constexpr std::uint64_t kStepRows = 512;
constexpr std::uint64_t kStepSequences = 32;
// Code, tokenizer tables, allocator and thread stacks: `tare serve` with a model of 49,152 tokens
// takes about 60 MB besides weights and KV.
constexpr std::uint64_t kProcessBytes = 64 << 20;
constexpr std::size_t kSmallFile = 1 << 20;

std::uint64_t RoundUp(std::int64_t value, std::int64_t multiple) {
  return static_cast<std::uint64_t>((value + multiple - 1) / multiple * multiple);
}

// The first number after `key` at the start of a line.
std::optional<std::uint64_t> NumberAfter(std::string_view text, std::string_view key) {
  for (std::string_view line : Split(text, '\n')) {
    if (!line.starts_with(key)) continue;
    line = Trim(line.substr(key.size()));
    std::uint64_t value = 0;
    const auto [end, code] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (code == std::errc()) return value;
  }
  return {};
}

std::optional<std::uint64_t> NumberIn(const std::filesystem::path& path,
                                      std::string_view key = "") {
  const auto text = ReadFile(path, kSmallFile);
  if (!text) return {};
  return NumberAfter(*text, key);
}

// Limit less what is used, file cache not counted since it gives way. Empty without a limit
// ("max") or without control groups.
std::optional<std::uint64_t> LeftInGroup(const std::filesystem::path& dir, const char* limit_file,
                                         const char* used_file, const char* cache_key) {
  const auto limit = NumberIn(dir / limit_file);
  const auto used = NumberIn(dir / used_file);
  if (!limit || !used) return {};
  const std::uint64_t cache = NumberIn(dir / "memory.stat", cache_key).value_or(0);
  const std::uint64_t held = *used - std::min(*used, cache);
  return *limit - std::min(*limit, held);
}

}  // namespace

std::uint64_t PackedBytes(kernels::WeightType type, std::int64_t rows, std::int64_t cols) {
  const std::uint64_t n = RoundUp(rows, 16);
  switch (type) {
    case kernels::WeightType::kF32:
      return n * static_cast<std::uint64_t>(cols) * 4;
    case kernels::WeightType::kBf16:
      return n * RoundUp(cols, 32) * 2;
    case kernels::WeightType::kInt8:  // a 16-bit scale for 32 codes, a float a row
      return n * (RoundUp(cols, 64) * 17 / 16 + 4);
    case kernels::WeightType::kInt4:  // and a minimum
      return n * (RoundUp(cols, 64) * 10 / 16 + 4);
  }
  return 0;
}

kernels::KvShape KvShapeOf(const ModelConfig& config, kernels::KvType type) {
  if (!config.latent) return {config.layers, config.kv_heads, config.head_dim, type};
  const LatentAttentionConfig& latent = *config.latent;
  return {config.layers, 1, latent.kv_rank + latent.rope_dim, type, latent.kv_rank};
}

std::uint64_t KvBytesPerToken(const ModelConfig& config, kernels::KvType type) {
  if (config.encoder) return 0;
  return kernels::KvBytesPerToken(KvShapeOf(config, type));
}

std::uint64_t WorkingBytes(const ModelConfig& config) {
  const auto u = [](int value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t hidden = u(config.hidden);
  // q, k, v twice and mixed; with latent attention queries in both spaces, and answers in both.
  std::uint64_t heads = 3 * u(config.heads + 2 * config.kv_heads) * u(config.head_dim);
  if (config.latent) {
    const LatentAttentionConfig& m = *config.latent;
    heads = u(config.heads) * (3 * u(m.nope_dim + m.rope_dim) + 3 * u(m.kv_rank) + u(m.rope_dim) +
                               2 * u(m.value_dim)) +
            3 * u(m.q_rank + m.kv_rank + m.rope_dim);
  }
  // Gate, up, activated and its quantised form; with experts for each chosen one, and its answer.
  std::uint64_t inner = 4 * u(config.intermediate);
  if (config.experts) {
    const ExpertsConfig& e = *config.experts;
    const std::uint64_t chosen = u(e.chosen) * (3 * u(e.intermediate) + 2 * hidden);
    const std::uint64_t expert_layer = chosen + 4 * u(e.shared_intermediate) + u(e.count);
    inner = e.leading_dense_layers > 0 ? std::max(inner, expert_layer) : expert_layer;
  }
  // Residual, normed and delta, and the quantised form.
  const std::uint64_t row = 4 * hidden + heads + inner;
  // An encoder has no logits, and a longer input has a step of its own (engine/embedder.h).
  if (config.encoder) {
    return sizeof(float) * std::max(kStepRows, u(config.context_length)) * row + kProcessBytes;
  }
  return sizeof(float) * (kStepRows * row + kStepSequences * u(config.vocab)) + kProcessBytes;
}

Result<std::uint64_t> AvailableMemory(const std::filesystem::path& proc,
                                      const std::filesystem::path& sys) {
  const auto kib = NumberIn(proc / "meminfo", "MemAvailable:");
  if (!kib) {
    return Fail(ErrorKind::kIo, "cannot read MemAvailable from '{}'", (proc / "meminfo").string());
  }
  std::uint64_t available = *kib * 1024;
  const auto groups = sys / "fs" / "cgroup";
  const std::optional<std::uint64_t> limits[] = {
      LeftInGroup(groups, "memory.max", "memory.current", "inactive_file"),
      LeftInGroup(groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                  "total_inactive_file")};
  for (const auto& left : limits) {
    if (left) available = std::min(available, *left);
  }
  return available;
}

std::string Sum(const MemoryNeed& need) {
  const std::string adapters =
      need.adapters > 0 ? " + adapters " + FormatBytes(need.adapters) : std::string();
  return fmt::format("weights {} + KV {} + working memory {}{} = {}", FormatBytes(need.weights),
                     FormatBytes(need.kv), FormatBytes(need.working), adapters,
                     FormatBytes(need.total()));
}

Status CheckFits(const MemoryNeed& need, std::uint64_t available, std::string_view model_name) {
  if (need.total() <= available) return {};
  return Fail(ErrorKind::kResourceExhausted,
              "{} does not fit: {} > {} available; use a narrower --dtype, a smaller --kv-memory, "
              "--max-model-len or --max-num-seqs, {}or a machine with more memory",
              model_name, Sum(need), FormatBytes(available),
              need.adapters > 0 ? "fewer adapters, " : "");
}

}  // namespace tare::model
