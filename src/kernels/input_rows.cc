#include "kernels/input_rows.h"

#include <cstring>

namespace tare::kernels {
namespace {

std::int64_t DivideUp(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Of a cell of a block.
constexpr std::int64_t kCodesOfCell = 2 * kBlockRows * kLineBytes;
constexpr std::int64_t kHalvesOfCell = 2 * kBlockRows;  // steps, sums
constexpr std::int64_t kTileValuesOfCell = 2 * 2 * kBlockRows * kGroup;

}  // namespace

bool InputRows::AreMany(WeightType type, std::int64_t rows) {
  const std::int64_t tile_rows = Kernels().tile_rows;
  return type == WeightType::kInt8 && tile_rows > 0 && rows >= tile_rows;
}

InputRows::Form InputRows::FormFor(WeightType type, bool many) {
  if (type == WeightType::kF32) return Form::kFloats;
  if (type == WeightType::kBf16) return Form::kBf16;
  return many ? Form::kTiles : Form::kCodes;
}

void InputRows::Reserve(WeightType type, std::int64_t cols, std::int64_t blocks, bool many) {
  form_ = FormFor(type, many);
  cols_ = cols;
  if (form_ == Form::kFloats) {
    cells_ = 0;
    memory_.Reserve(static_cast<std::size_t>(blocks * kBlockRows * cols) * sizeof(float));
    floats_ = memory_.as<float>();
    return;
  }
  cells_ = DivideUp(cols, form_ == Form::kBf16 ? kBf16CellDepth : kInt8CellDepth);
  const std::int64_t count = blocks * cells_;
  const std::int64_t sums = count * kHalvesOfCell;
  switch (form_) {
    case Form::kFloats:
      break;
    case Form::kBf16:
      memory_.Reserve(static_cast<std::size_t>(count * kBlockRows * kLineBytes));
      halves_ = memory_.as<std::uint16_t>();
      break;
    case Form::kTiles:
      memory_.Reserve(static_cast<std::size_t>(count * kTileValuesOfCell) * sizeof(std::uint16_t) +
                      static_cast<std::size_t>(sums) * sizeof(float));
      halves_ = memory_.as<std::uint16_t>();
      codes_.half_sums = reinterpret_cast<float*>(halves_ + count * kTileValuesOfCell);
      break;
    case Form::kCodes:
      memory_.Reserve(static_cast<std::size_t>(count * kCodesOfCell) +
                      static_cast<std::size_t>(sums) *
                          (sizeof(float) + sizeof(std::int32_t) + sizeof(float)));
      codes_.codes = memory_.as<std::int8_t>();
      codes_.steps = reinterpret_cast<float*>(codes_.codes + count * kCodesOfCell);
      codes_.sums = reinterpret_cast<std::int32_t*>(codes_.steps + sums);
      codes_.half_sums = reinterpret_cast<float*>(codes_.sums + sums);
      break;
  }
}

CodeRows InputRows::CodesOf(std::int64_t block) const {
  const std::int64_t half = block * cells_ * kHalvesOfCell;
  return {codes_.codes + block * cells_ * kCodesOfCell, codes_.steps + half, codes_.sums + half,
          codes_.half_sums + half};
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
    case Form::kTiles:
      kernels.quantize_tile_row(x, cols_, cells_, slot, halves_ + at * kTileValuesOfCell,
                                codes_.half_sums + at * kHalvesOfCell);
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
    case Form::kTiles:
      form.tiles = halves_ + at * kTileValuesOfCell;
      form.half_sums = codes_.half_sums + at * kHalvesOfCell;
      break;
    case Form::kCodes: {
      const CodeRows codes = CodesOf(block);
      form.codes = codes.codes;
      form.steps = codes.steps;
      form.sums = codes.sums;
      form.half_sums = codes.half_sums;
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
