#include "eval/quantized_gguf.h"

#include <cstring>

#include "kernels/half.h"
#include "kernels/stored_blocks.h"
#include "model/gguf.h"
#include "model/part_file.h"

namespace tare::eval {
namespace {

// Ids of the GGUF specification: a tensor's type, and general.file_type ("mostly" that type).
struct GgufKind {
  std::uint32_t type;
  std::uint32_t file_type;
  kernels::StoredType stored;
};
constexpr GgufKind kQ4_0 = {2, 2, kernels::StoredType::kQ4_0};
constexpr GgufKind kQ4_1 = {3, 3, kernels::StoredType::kQ4_1};
constexpr GgufKind kQ8_0 = {8, 7, kernels::StoredType::kQ8_0};
constexpr std::uint32_t kF32 = 0;

GgufKind KindOf(const RoundingRule& rule) {
  if (rule.bits == 8) return kQ8_0;
  return rule.zero_point ? kQ4_1 : kQ4_0;
}

template <typename T>
void Put(std::string& out, const T& value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

template <typename Block>
void PutNibbles(std::string& out, Block& block, const std::uint8_t* codes) {
  constexpr int kHalf = kernels::kStoredGroup / 2;
  for (int i = 0; i < kHalf; ++i) {
    block.codes[i] = static_cast<std::uint8_t>(codes[i] | codes[i + kHalf] << 4);
  }
  Put(out, block);
}

std::string Blocks(const CodedMatrix& matrix) {
  std::string out;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t k = 0; k < matrix.cols; k += kernels::kStoredGroup) {
      const auto at = static_cast<std::size_t>(row * matrix.groups() + k / matrix.rule.group);
      const std::uint16_t scale = kernels::FloatToF16(matrix.scales[at]);
      const std::uint8_t* codes = matrix.codes.data() + row * matrix.cols + k;
      if (matrix.rule.bits == 8) {
        kernels::BlockQ8_0 block{scale, {}};
        for (int i = 0; i < kernels::kStoredGroup; ++i) {
          block.codes[i] = static_cast<std::int8_t>(int{codes[i]} - int{matrix.zeros[at]});
        }
        Put(out, block);
      } else if (matrix.rule.zero_point) {
        const float minimum = -matrix.scales[at] * static_cast<float>(matrix.zeros[at]);
        kernels::BlockQ4_1 block{scale, kernels::FloatToF16(minimum), {}};
        PutNibbles(out, block, codes);
      } else {
        kernels::BlockQ4_0 block{scale, {}};
        PutNibbles(out, block, codes);
      }
    }
  }
  return out;
}

}  // namespace

Status WriteQuantizedGguf(const std::filesystem::path& source, const std::filesystem::path& out,
                          const QuantizedTensors& tensors, const RoundingRule& rule) {
  TARE_TRY(const model::GgufFile file, model::GgufFile::Open(source));
  TARE_TRY(const std::int64_t stated, file.IntOr("general.alignment", 32));
  const auto alignment = static_cast<std::uint64_t>(stated);
  const auto padded = [&](std::uint64_t size) {
    return (size + alignment - 1) / alignment * alignment;
  };
  const GgufKind kind = KindOf(rule);
  std::string head = "GGUF";
  Put<std::uint32_t>(head, 3);
  Put<std::uint64_t>(head, file.tensors().size());
  Put<std::uint64_t>(head, file.metadata_count());
  head += file.MetadataFor(kind.file_type);
  std::uint64_t offset = 0;
  for (const model::GgufTensor& tensor : file.tensors()) {
    Put<std::uint64_t>(head, tensor.name.size());
    head += tensor.name;
    Put(head, static_cast<std::uint32_t>(tensor.rank));
    for (int i = 0; i < tensor.rank; ++i) Put(head, tensor.dims[static_cast<std::size_t>(i)]);
    const bool rounded = tensors.matrices.contains(tensor.name);
    const bool scaled = tensors.scaled.contains(tensor.name);
    Put(head, rounded ? kind.type : scaled ? kF32 : tensor.type->id);
    Put(head, offset);
    std::uint64_t size = tensor.data.size();
    if (rounded) {
      size = static_cast<std::uint64_t>(tensor.elements() / kernels::BlockElements(kind.stored)) *
             static_cast<std::uint64_t>(kernels::BlockBytes(kind.stored));
    } else if (scaled) {
      size = static_cast<std::uint64_t>(tensor.elements()) * sizeof(float);
    }
    offset += padded(size);
  }
  TARE_TRY(model::PartFile part, model::PartFile::Create(out));
  head.resize(padded(head.size()), '\0');
  TARE_RETURN_IF_ERROR(part.Write(head));
  const auto write = [&](std::span<const std::byte> bytes) -> Status {
    TARE_RETURN_IF_ERROR(part.Write(bytes));
    return part.Write(std::string(padded(bytes.size()) - bytes.size(), '\0'));
  };
  for (const model::GgufTensor& tensor : file.tensors()) {
    if (const auto matrix = tensors.matrices.find(tensor.name); matrix != tensors.matrices.end()) {
      const std::string blocks = Blocks(matrix->second);
      TARE_RETURN_IF_ERROR(write(std::as_bytes(std::span(blocks))));
    } else if (const auto values = tensors.scaled.find(tensor.name);
               values != tensors.scaled.end()) {
      TARE_RETURN_IF_ERROR(write(std::as_bytes(std::span(values->second))));
    } else {
      TARE_RETURN_IF_ERROR(write(tensor.data));
    }
  }
  return part.Commit();
}

}  // namespace tare::eval
