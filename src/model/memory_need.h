// How much memory serving a model takes, and how much there is, told before anything is loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kernels/kv_pages.h"
#include "kernels/matmul.h"
#include "model/model_config.h"

namespace tare::model {

// Bytes of memory to serve with.
struct MemoryNeed {
  std::uint64_t weights = 0;
  std::uint64_t kv = 0;
  std::uint64_t working = 0;   // activations, logits, tokenizer, allocator
  std::uint64_t adapters = 0;  // at most
  std::uint64_t total() const { return weights + kv + working + adapters; }
};

// A matrix as the kernels keep it (kernels/packed_layout.h): codes, scales, padding.
std::uint64_t PackedBytes(kernels::WeightType type, std::int64_t rows, std::int64_t cols);

// What the engine's pages hold of a model: K and V, or the latent vectors of latent attention.
kernels::KvShape KvShapeOf(const ModelConfig& config, kernels::KvType type);

// The same of one token over all layers, in bytes.
std::uint64_t KvBytesPerToken(const ModelConfig& config, kernels::KvType type);

// Scratch of a step of the engine's usual size.
std::uint64_t WorkingBytes(const ModelConfig& config);

// Memory this process can still take: what the machine reports as available, or less under a
// control group's limit. The directories are /proc and /sys but for tests.
Result<std::uint64_t> AvailableMemory(const std::filesystem::path& proc = "/proc",
                                      const std::filesystem::path& sys = "/sys");

// "weights 3.00 GiB + KV 1.00 GiB + working memory 512 MiB = 4.50 GiB"; adapters if there are any.
std::string Sum(const MemoryNeed& need);

// kResourceExhausted, with the sum and what to do about it, when `need` is over `available`.
Status CheckFits(const MemoryNeed& need, std::uint64_t available, std::string_view model_name);

}  // namespace tare::model
