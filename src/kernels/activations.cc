#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/matmul_impl.h"

namespace tare::kernels {

Activations::Activations() : impl_(std::make_unique<Impl>()) {}
Activations::~Activations() = default;

void Activations::Set(const float* x, std::int64_t rows, std::int64_t cols) {
  TARE_CHECK(rows >= 0 && cols > 0);
  impl_->cells = ActivationCells{.rows = rows, .cols = cols, .f32 = x};
  impl_->has_bf16 = false;
  impl_->has_codes = false;
}

ActivationCells Activations::Impl::In(WeightType type, ThreadPool& pool) {
  if (type == WeightType::kF32) return cells;
  const bool is_bf16 = type == WeightType::kBf16;
  InputRows& rows = is_bf16 ? bf16 : codes;
  if (!std::exchange(is_bf16 ? has_bf16 : has_codes, true)) {
    rows.Reserve(type, cells.cols, (cells.rows + kBlockRows - 1) / kBlockRows);
    pool.ParallelFor(static_cast<std::size_t>(cells.rows), 4,
                     [&](std::size_t begin, std::size_t end) {
                       for (auto row = static_cast<std::int64_t>(begin);
                            row < static_cast<std::int64_t>(end); ++row) {
                         rows.Set(row / kBlockRows, static_cast<int>(row % kBlockRows),
                                  cells.f32 + row * cells.cols);
                       }
                     });
  }
  return rows.At(0, cells.rows);
}

void MatMul(const PackedMatrix& w, Activations& x, float* y, std::int64_t stride,
            ThreadPool& pool) {
  const WeightCells& weights = w.impl().cells;
  const std::int64_t rows = x.impl().cells.rows;
  if (rows == 0) return;
  TARE_CHECK(weights.data != nullptr && weights.cols == x.impl().cells.cols);
  if (w.impl().observer) {
    w.impl().observer({x.impl().cells.f32, static_cast<std::size_t>(rows * weights.cols)});
  }
  const ActivationCells input = x.impl().In(weights.type, pool);
  const Output out{y, stride == 0 ? weights.rows : stride};
  const KernelTable::MatMulPanels kernel = KernelFor(weights.type);
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
