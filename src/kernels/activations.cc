#include <algorithm>

#include "base/check.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul_impl.h"

namespace tare::kernels {
namespace {

std::int64_t DivideUp(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

Activations::Activations() : impl_(std::make_unique<Impl>()) {}
Activations::~Activations() = default;

void Activations::Set(const float* x, std::int64_t rows, std::int64_t cols) {
  TARE_CHECK(rows >= 0 && cols > 0);
  impl_->cells = ActivationCells{.rows = rows, .cols = cols, .f32 = x};
  impl_->has_bf16 = false;
  impl_->has_int8 = false;
  impl_->has_code_bf16 = false;
}

ActivationCells Activations::Impl::In(WeightType type, ThreadPool& pool) {
  ActivationCells form = cells;
  if (type == WeightType::kF32) return form;
  if (type != WeightType::kBf16 && Kernels().round_row_for_codes != nullptr) {
    return ForCodes(pool);
  }
  const bool is_bf16 = type == WeightType::kBf16;
  const std::int64_t blocks = DivideUp(cells.rows, kBlockRows);
  form.cells = DivideUp(cells.cols, is_bf16 ? kBf16CellDepth : kInt8CellDepth);
  const std::int64_t cell_rows = blocks * form.cells * kBlockRows;
  const auto code_bytes = static_cast<std::size_t>(cell_rows) * kLineBytes;
  const auto count = static_cast<std::size_t>(cell_rows);

  const KernelTable& kernels = Kernels();
  if (is_bf16) {
    bf16.Reserve(code_bytes);
    auto* halves = bf16.as<std::uint16_t>();
    form.bf16 = halves;
    if (std::exchange(has_bf16, true)) return form;
    pool.ParallelFor(
        static_cast<std::size_t>(cells.rows), 4, [&](std::size_t begin, std::size_t end) {
          for (auto row = static_cast<std::int64_t>(begin); row < static_cast<std::int64_t>(end);
               ++row) {
            const std::int64_t block = row / kBlockRows * form.cells * kBlockRows;
            kernels.round_row(cells.f32 + row * cells.cols, cells.cols, form.cells,
                              static_cast<int>(row % kBlockRows), halves + block * kBf16CellDepth);
          }
        });
    return form;
  }

  int8.Reserve(code_bytes + 2 * count * (sizeof(float) + sizeof(std::int32_t) + sizeof(float)));
  auto* codes = int8.as<std::int8_t>();
  auto* scales = reinterpret_cast<float*>(codes + code_bytes);
  auto* sums = reinterpret_cast<std::int32_t*>(scales + 2 * count);
  auto* float_sums = reinterpret_cast<float*>(sums + 2 * count);
  form.codes = codes;
  form.scales = scales;
  form.sums = sums;
  form.float_sums = float_sums;
  if (std::exchange(has_int8, true)) return form;
  pool.ParallelFor(
      static_cast<std::size_t>(cells.rows), 4, [&](std::size_t begin, std::size_t end) {
        for (auto row = static_cast<std::int64_t>(begin); row < static_cast<std::int64_t>(end);
             ++row) {
          const std::int64_t block = row / kBlockRows * form.cells * kBlockRows;
          kernels.quantize_row(cells.f32 + row * cells.cols, cells.cols, form.cells,
                               static_cast<int>(row % kBlockRows), codes + block * kInt8CellDepth,
                               scales + 2 * block, sums + 2 * block, float_sums + 2 * block);
        }
      });
  return form;
}

ActivationCells Activations::Impl::ForCodes(ThreadPool& pool) {
  ActivationCells form = cells;
  const std::int64_t blocks = DivideUp(cells.rows, kBlockRows);
  form.cells = DivideUp(cells.cols, kInt8CellDepth) * (kInt8CellDepth / kGroup);
  const auto group_rows = static_cast<std::size_t>(blocks * form.cells * kBlockRows);
  const std::size_t code_bytes = group_rows * kLineBytes;
  code_bf16.Reserve(code_bytes + group_rows * sizeof(float));
  auto* halves = code_bf16.as<std::uint16_t>();
  auto* sums = reinterpret_cast<float*>(code_bf16.as<std::uint8_t>() + code_bytes);
  form.code_bf16 = halves;
  form.group_sums = sums;
  if (std::exchange(has_code_bf16, true)) return form;
  const KernelTable& kernels = Kernels();
  pool.ParallelFor(static_cast<std::size_t>(cells.rows), 4,
                   [&](std::size_t begin, std::size_t end) {
                     for (auto row = static_cast<std::int64_t>(begin);
                          row < static_cast<std::int64_t>(end); ++row) {
                       const std::int64_t block = row / kBlockRows * form.cells * kBlockRows;
                       kernels.round_row_for_codes(cells.f32 + row * cells.cols, cells.cols,
                                                   form.cells, static_cast<int>(row % kBlockRows),
                                                   halves + block * kGroup, sums + block);
                     }
                   });
  return form;
}

void MatMul(const PackedMatrix& w, Activations& x, float* y, std::int64_t stride,
            ThreadPool& pool) {
  const WeightCells& weights = w.impl().cells;
  const std::int64_t rows = x.impl().cells.rows;
  if (rows == 0) return;
  TARE_CHECK(weights.data != nullptr && weights.cols == x.impl().cells.cols);
  const ActivationCells input = x.impl().In(weights.type, pool);
  const Output out{y, stride == 0 ? weights.rows : stride};
  const KernelTable& kernels = Kernels();
  KernelTable::MatMulPanels kernel = nullptr;
  switch (weights.type) {
    case WeightType::kF32:
      kernel = kernels.f32;
      break;
    case WeightType::kBf16:
      kernel = kernels.bf16;
      break;
    case WeightType::kInt8:
      kernel = kernels.int8;
      break;
    case WeightType::kInt4:
      kernel = kernels.int4;
      break;
  }
  // Four shares a thread: enough for an even finish, few enough that counting costs nothing.
  // Many rows want whole groups of 16 panels, which share a pass over the activations.
  std::int64_t grain = std::max<std::int64_t>(1, weights.panels / (4 * pool.size()));
  if (grain > 16) grain = grain / 16 * 16;
  if (grain > 4) grain = grain / 4 * 4;
  pool.ParallelFor(static_cast<std::size_t>(weights.panels), static_cast<std::size_t>(grain),
                   [&](std::size_t begin, std::size_t end) {
                     kernel(weights, input, out, static_cast<std::int64_t>(begin),
                            static_cast<std::int64_t>(end));
                   });
}

}  // namespace tare::kernels
