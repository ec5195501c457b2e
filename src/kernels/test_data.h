// Seeded inputs and double-precision references shared by the kernel tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/half.h"
#include "kernels/isa.h"
#include "kernels/stored_blocks.h"
#include "kernels/tensor_view.h"

namespace tare::kernels {

inline std::vector<float> RandomFloats(std::size_t count, std::uint32_t seed, float spread = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A stored matrix that owns its bytes.
struct StoredMatrix {
  std::vector<std::byte> bytes;
  TensorView view;

  std::vector<float> Row(std::int64_t row) const {
    std::vector<float> out(static_cast<std::size_t>(view.cols));
    DequantizeRow(view, row, out);
    return out;
  }
};

// Random weights: plain types hold normal values, block types random codes with random scales.
inline StoredMatrix RandomStored(StoredType type, std::int64_t rows, std::int64_t cols,
                                 std::uint32_t seed) {
  StoredMatrix matrix;
  const auto blocks = static_cast<std::size_t>(rows * cols / BlockElements(type));
  const auto block_bytes = static_cast<std::size_t>(BlockBytes(type));
  matrix.bytes.resize(blocks * block_bytes);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  for (std::size_t b = 0; b < blocks; ++b) {
    std::byte* at = matrix.bytes.data() + b * block_bytes;
    const float value = normal(random);
    if (type == StoredType::kF32) {
      std::memcpy(at, &value, sizeof value);
      continue;
    }
    if (type == StoredType::kF16 || type == StoredType::kBf16) {
      const std::uint16_t half = type == StoredType::kF16 ? FloatToF16(value) : FloatToBf16(value);
      std::memcpy(at, &half, sizeof half);
      continue;
    }
    std::size_t header = 2;
    const std::uint16_t scale = FloatToF16(value * 0.1f);  // either sign, as in real files
    std::memcpy(at, &scale, sizeof scale);
    if (type == StoredType::kMxfp4 || type == StoredType::kCodes4 ||
        type == StoredType::kCodes4Zero || type == StoredType::kCodes8) {
      for (std::size_t i = 0; i < block_bytes; ++i) at[i] = std::byte(random() & 0xff);
      const float wide = F16ToFloat(scale);
      const auto zero = static_cast<std::int32_t>(random() % 17);
      if (type == StoredType::kMxfp4) {
        at[0] = std::byte(118 + random() % 8);
      } else {
        std::memcpy(at, &wide, sizeof wide);
      }
      if (type == StoredType::kCodes4Zero) std::memcpy(at + 4, &zero, sizeof zero);
      continue;
    }
    if (type == StoredType::kQ6_K) {  // its scale comes last
      for (std::size_t i = 0; i < block_bytes - 2; ++i) at[i] = std::byte(random() & 0xff);
      std::memcpy(at + block_bytes - 2, &scale, sizeof scale);
      continue;
    }
    if (type == StoredType::kQ4_1 || type == StoredType::kQ5_1 || type == StoredType::kQ4_K ||
        type == StoredType::kQ5_K) {
      const std::uint16_t minimum = FloatToF16(normal(random));
      std::memcpy(at + 2, &minimum, sizeof minimum);
      header = 4;
    }
    for (std::size_t i = header; i < block_bytes; ++i) at[i] = std::byte(random() & 0xff);
  }
  matrix.view = TensorView{type, rows, cols, matrix.bytes};
  return matrix;
}

// Runs the rest of a test with one instruction set, then goes back to the default.
class ScopedIsa {
 public:
  explicit ScopedIsa(Isa isa) { ok_ = SelectIsa(ToString(isa)).has_value(); }
  ~ScopedIsa() { (void)SelectIsa(""); }
  bool ok() const { return ok_; }

 private:
  bool ok_ = false;
};

}  // namespace tare::kernels
