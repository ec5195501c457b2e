#include "kernels/input_rows.h"

#include <cstring>

namespace tare::kernels {
namespace {

std::int64_t DivideUp(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Of a cell of a block.
constexpr std::int64_t kCodesOfCell = 2 * kBlockRows * kLineBytes;
constexpr std::int64_t kSumsOfCell = 2 * kBlockRows;

std::int64_t SumBytesOfBlock(std::int64_t cells) {
  return SumTiles(cells) * kSumBytes * kBlockRows * kLineBytes;
}

}  // namespace

InputRows::Form InputRows::FormFor(WeightType type) {
  if (type == WeightType::kF32) return Form::kFloats;
  if (type == WeightType::kBf16) return Form::kBf16;
  return Form::kCodes;
}

void InputRows::Reserve(WeightType type, std::int64_t cols, std::int64_t blocks) {
  form_ = FormFor(type);
  cols_ = cols;
  if (form_ == Form::kFloats) {
    cells_ = 0;
    memory_.Reserve(static_cast<std::size_t>(blocks * kBlockRows * cols) * sizeof(float));
    floats_ = memory_.as<float>();
    return;
  }
  cells_ = DivideUp(cols, form_ == Form::kBf16 ? kBf16CellDepth : kInt8CellDepth);
  const std::int64_t count = blocks * cells_;
  switch (form_) {
    case Form::kFloats:
      break;
    case Form::kBf16:
      memory_.Reserve(static_cast<std::size_t>(count * kBlockRows * kLineBytes));
      halves_ = memory_.as<std::uint16_t>();
      break;
    case Form::kCodes: {
      const std::int64_t sums = count * kSumsOfCell, steps = blocks * kBlockRows;
      memory_.Reserve(static_cast<std::size_t>(count * kCodesOfCell) +
                      static_cast<std::size_t>(blocks * SumBytesOfBlock(cells_)) +
                      static_cast<std::size_t>(sums) * sizeof(std::int32_t) +
                      static_cast<std::size_t>(steps) * sizeof(float));
      codes_.codes = memory_.as<std::int8_t>();
      codes_.sum_bytes = reinterpret_cast<std::uint8_t*>(codes_.codes + count * kCodesOfCell);
      codes_.sums =
          reinterpret_cast<std::int32_t*>(codes_.sum_bytes + blocks * SumBytesOfBlock(cells_));
      codes_.steps = reinterpret_cast<float*>(codes_.sums + sums);
      break;
    }
  }
}

CodeRows InputRows::CodesOf(std::int64_t block) const {
  return {codes_.codes + block * cells_ * kCodesOfCell, codes_.steps + block * kBlockRows,
          codes_.sums + block * cells_ * kSumsOfCell,
          codes_.sum_bytes + block * SumBytesOfBlock(cells_)};
}

void InputRows::Set(std::int64_t block, int slot, const float* x) const {
  const KernelTable& kernels = Kernels();
  const std::int64_t at = block * cells_;
  switch (form_) {
    case Form::kFloats:
      std::memcpy(floats_ + (block * kBlockRows + slot) * cols_, x,
                  static_cast<std::size_t>(cols_) * sizeof(float));
      return;
    case Form::kBf16:
      kernels.round_row(x, cols_, cells_, slot, halves_ + at * kBlockRows * kBf16CellDepth);
      return;
    case Form::kCodes:
      kernels.quantize_row(x, cols_, cells_, slot, CodesOf(block));
      return;
  }
}

ActivationCells InputRows::At(std::int64_t block, std::int64_t rows) const {
  ActivationCells form{.rows = rows, .cols = cols_, .cells = cells_};
  const std::int64_t at = block * cells_;
  switch (form_) {
    case Form::kFloats:
      form.f32 = floats_ + block * kBlockRows * cols_;
      break;
    case Form::kBf16:
      form.bf16 = halves_ + at * kBlockRows * kBf16CellDepth;
      break;
    case Form::kCodes: {
      const CodeRows codes = CodesOf(block);
      form.codes = codes.codes;
      form.steps = codes.steps;
      form.sums = codes.sums;
      form.sum_bytes = codes.sum_bytes;
      break;
    }
  }
  return form;
}

KernelTable::MatMulPanels KernelFor(WeightType type) {
  const KernelTable& kernels = Kernels();
  switch (type) {
    case WeightType::kF32:
      return kernels.f32;
    case WeightType::kBf16:
      return kernels.bf16;
    case WeightType::kInt8:
      return kernels.int8;
    case WeightType::kInt4:
      return kernels.int4;
  }
  return kernels.f32;
}

}  // namespace tare::kernels
