#include "kernels/tensor_view.h"

#include <cstring>

#include "base/check.h"
#include "kernels/half.h"
#include "kernels/stored_blocks.h"

namespace tare::kernels {

const char* ToString(StoredType type) {
  switch (type) {
    case StoredType::kF32:
      return "F32";
    case StoredType::kF16:
      return "F16";
    case StoredType::kBf16:
      return "BF16";
    case StoredType::kQ8_0:
      return "Q8_0";
    case StoredType::kQ4_0:
      return "Q4_0";
    case StoredType::kQ4_1:
      return "Q4_1";
    case StoredType::kQ5_0:
      return "Q5_0";
    case StoredType::kQ5_1:
      return "Q5_1";
    case StoredType::kQ4_K:
      return "Q4_K";
    case StoredType::kQ5_K:
      return "Q5_K";
    case StoredType::kQ6_K:
      return "Q6_K";
    case StoredType::kIq4Nl:
      return "IQ4_NL";
    case StoredType::kMxfp4:
      return "MXFP4";
    case StoredType::kCodes4:
      return "CODES4";
    case StoredType::kCodes4Zero:
      return "CODES4_ZERO";
    case StoredType::kCodes8:
      return "CODES8";
  }
  return "?";
}

int BlockElements(StoredType type) {
  switch (type) {
    case StoredType::kF32:
    case StoredType::kF16:
    case StoredType::kBf16:
      return 1;
    case StoredType::kQ8_0:
    case StoredType::kQ4_0:
    case StoredType::kQ4_1:
    case StoredType::kQ5_0:
    case StoredType::kQ5_1:
    case StoredType::kIq4Nl:
    case StoredType::kMxfp4:
    case StoredType::kCodes4:
    case StoredType::kCodes4Zero:
    case StoredType::kCodes8:
      return kStoredGroup;
    case StoredType::kQ4_K:
    case StoredType::kQ5_K:
    case StoredType::kQ6_K:
      return kStoredSuper;
  }
  return 1;
}

int BlockBytes(StoredType type) {
  switch (type) {
    case StoredType::kF32:
      return 4;
    case StoredType::kF16:
    case StoredType::kBf16:
      return 2;
    case StoredType::kQ8_0:
      return sizeof(BlockQ8_0);
    case StoredType::kQ4_0:
      return sizeof(BlockQ4_0);
    case StoredType::kQ4_1:
      return sizeof(BlockQ4_1);
    case StoredType::kQ5_0:
      return sizeof(BlockQ5_0);
    case StoredType::kQ5_1:
      return sizeof(BlockQ5_1);
    case StoredType::kIq4Nl:
      return sizeof(BlockIq4Nl);
    case StoredType::kMxfp4:
      return sizeof(BlockMxfp4);
    case StoredType::kCodes4:
      return sizeof(BlockCodes4);
    case StoredType::kCodes4Zero:
      return sizeof(BlockCodes4Zero);
    case StoredType::kCodes8:
      return sizeof(BlockCodes8);
    case StoredType::kQ4_K:
      return sizeof(BlockQ4_K);
    case StoredType::kQ5_K:
      return sizeof(BlockQ5_K);
    case StoredType::kQ6_K:
      return sizeof(BlockQ6_K);
  }
  return 1;
}

void DequantizeRow(const TensorView& tensor, std::int64_t row, std::span<float> out) {
  const auto cols = static_cast<std::size_t>(tensor.cols);
  TARE_CHECK(row >= 0 && row < tensor.rows && out.size() >= cols);
  const std::byte* source = RowBytes(tensor, row);
  const auto load = [source](std::size_t index, auto& value) {
    std::memcpy(&value, source + index * sizeof value, sizeof value);
  };
  float* to = out.data();
  switch (tensor.type) {
    case StoredType::kF32:
      std::memcpy(to, source, cols * sizeof(float));
      return;
    case StoredType::kF16:
    case StoredType::kBf16:
      for (std::size_t i = 0; i < cols; ++i) {
        std::uint16_t half;
        load(i, half);
        to[i] = tensor.type == StoredType::kF16 ? F16ToFloat(half) : Bf16ToFloat(half);
      }
      return;
    case StoredType::kQ8_0:
      for (std::size_t b = 0; b < cols / kStoredGroup; ++b, to += kStoredGroup) {
        BlockQ8_0 block;
        load(b, block);
        const float scale = F16ToFloat(block.scale);
        for (int i = 0; i < kStoredGroup; ++i) to[i] = scale * static_cast<float>(block.codes[i]);
      }
      return;
    case StoredType::kQ4_0:
      for (std::size_t b = 0; b < cols / kStoredGroup; ++b, to += kStoredGroup) {
        BlockQ4_0 block;
        load(b, block);
        const float scale = F16ToFloat(block.scale);
        for (int i = 0; i < kStoredGroup; ++i) {
          to[i] = scale * static_cast<float>(Nibble(block.codes, i) - 8);
        }
      }
      return;
    case StoredType::kQ4_1:
      for (std::size_t b = 0; b < cols / kStoredGroup; ++b, to += kStoredGroup) {
        BlockQ4_1 block;
        load(b, block);
        const float scale = F16ToFloat(block.scale);
        const float minimum = F16ToFloat(block.minimum);
        for (int i = 0; i < kStoredGroup; ++i) {
          to[i] = scale * static_cast<float>(Nibble(block.codes, i)) + minimum;
        }
      }
      return;
    case StoredType::kQ5_0:
    case StoredType::kQ5_1:
    case StoredType::kIq4Nl:
    case StoredType::kMxfp4:
    case StoredType::kCodes4:
    case StoredType::kCodes4Zero:
    case StoredType::kCodes8:
    case StoredType::kQ4_K:
    case StoredType::kQ5_K:
    case StoredType::kQ6_K:
      for (std::size_t g = 0; g < cols / kStoredGroup; ++g, to += kStoredGroup) {
        const CodeGroup group = ReadCodes(tensor.type, source, static_cast<std::int64_t>(g));
        for (int i = 0; i < kStoredGroup; ++i) {
          const float value = group.scale[i / 16] * static_cast<float>(group.codes[i]);
          to[i] = group.has_minimum ? value + group.minimum : value;
        }
      }
      return;
  }
}

}  // namespace tare::kernels
