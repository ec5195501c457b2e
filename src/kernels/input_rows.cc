#include "kernels/input_rows.h"

#include <cstring>

namespace tare::kernels {
namespace {

std::int64_t DivideUp(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

InputRows::Form InputRows::FormFor(WeightType type) {
  if (type == WeightType::kF32) return Form::kFloats;
  if (type == WeightType::kBf16) return Form::kBf16;
  return Kernels().round_row_for_codes != nullptr ? Form::kBf16ForCodes : Form::kCodes;
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
  if (form_ == Form::kBf16ForCodes) cells_ *= kInt8CellDepth / kGroup;
  const auto count = static_cast<std::size_t>(blocks * cells_ * kBlockRows);
  const std::size_t line_bytes = count * kLineBytes;
  switch (form_) {
    case Form::kFloats:
      break;
    case Form::kBf16:
      memory_.Reserve(line_bytes);
      halves_ = memory_.as<std::uint16_t>();
      break;
    case Form::kBf16ForCodes:
      memory_.Reserve(line_bytes + count * sizeof(float));
      halves_ = memory_.as<std::uint16_t>();
      float_sums_ = reinterpret_cast<float*>(memory_.as<std::uint8_t>() + line_bytes);
      break;
    case Form::kCodes:
      memory_.Reserve(line_bytes +
                      2 * count * (sizeof(float) + sizeof(std::int32_t) + sizeof(float)));
      codes_ = memory_.as<std::int8_t>();
      scales_ = reinterpret_cast<float*>(codes_ + line_bytes);
      sums_ = reinterpret_cast<std::int32_t*>(scales_ + 2 * count);
      float_sums_ = reinterpret_cast<float*>(sums_ + 2 * count);
      break;
  }
}

void InputRows::Set(std::int64_t block, int slot, const float* x) const {
  const KernelTable& kernels = Kernels();
  const std::int64_t at = block * cells_ * kBlockRows;
  switch (form_) {
    case Form::kFloats:
      std::memcpy(floats_ + (block * kBlockRows + slot) * cols_, x,
                  static_cast<std::size_t>(cols_) * sizeof(float));
      return;
    case Form::kBf16:
      kernels.round_row(x, cols_, cells_, slot, halves_ + at * kBf16CellDepth);
      return;
    case Form::kBf16ForCodes:
      kernels.round_row_for_codes(x, cols_, cells_, slot, halves_ + at * kGroup, float_sums_ + at);
      return;
    case Form::kCodes:
      kernels.quantize_row(x, cols_, cells_, slot, codes_ + at * kInt8CellDepth, scales_ + 2 * at,
                           sums_ + 2 * at, float_sums_ + 2 * at);
      return;
  }
}

ActivationCells InputRows::At(std::int64_t block, std::int64_t rows) const {
  ActivationCells form{.rows = rows, .cols = cols_, .cells = cells_};
  const std::int64_t at = block * cells_ * kBlockRows;
  switch (form_) {
    case Form::kFloats:
      form.f32 = floats_ + block * kBlockRows * cols_;
      break;
    case Form::kBf16:
      form.bf16 = halves_ + at * kBf16CellDepth;
      break;
    case Form::kBf16ForCodes:
      form.code_bf16 = halves_ + at * kGroup;
      form.group_sums = float_sums_ + at;
      break;
    case Form::kCodes:
      form.codes = codes_ + at * kInt8CellDepth;
      form.scales = scales_ + 2 * at;
      form.sums = sums_ + 2 * at;
      form.float_sums = float_sums_ + 2 * at;
      break;
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
