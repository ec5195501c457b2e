// A weight matrix as a checkpoint stores it: type, shape, bytes. Non-owning; the mapping it points
// into must outlive it. Block formats: GGUF specification, ggml's quantised types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace tare::kernels {

// Element types a checkpoint may hold. The GGUF reader maps its ids to these, the reader of
// quantised Hugging Face folders its methods.
enum class StoredType {
  kF32,
  kF16,
  kBf16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIq4Nl,
  kMxfp4,
  // Codes of checkpoints that keep codes, scales and zero points in tensors of their own (AWQ,
  // GPTQ, compressed-tensors), brought together in blocks of 32 with a float scale.
  kCodes4,      // value = scale * (code - 8)
  kCodes4Zero,  // value = scale * (code - zero)
  kCodes8,      // value = scale * code
};

const char* ToString(StoredType type);
// Elements per block (1 for plain types) and bytes per block.
int BlockElements(StoredType type);
int BlockBytes(StoredType type);
// Bytes of `cols` values, a whole number of blocks.
inline std::size_t RowSize(StoredType type, std::int64_t cols) {
  return static_cast<std::size_t>(cols / BlockElements(type)) *
         static_cast<std::size_t>(BlockBytes(type));
}

struct TensorView {
  StoredType type = StoredType::kF32;
  std::int64_t rows = 0;            // output features
  std::int64_t cols = 0;            // input features, contiguous; a multiple of BlockElements(type)
  std::span<const std::byte> data;  // rows * cols / BlockElements * BlockBytes
};

// Expands row `row` to floats, out[cols].
void DequantizeRow(const TensorView& tensor, std::int64_t row, std::span<float> out);

}  // namespace tare::kernels
