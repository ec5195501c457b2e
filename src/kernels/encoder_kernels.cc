#include "kernels/encoder_kernels.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/kernel_table.h"

namespace tare::kernels {
namespace {

// Floats that are worth waking another thread for: about 2 us of work.
constexpr std::int64_t kFloatsPerShare = 8192;

template <typename Work>
void ForRows(std::int64_t rows, std::int64_t cols, ThreadPool& pool, const Work& work) {
  TARE_CHECK(cols > 0);
  const std::int64_t grain = std::max<std::int64_t>(1, kFloatsPerShare / cols);
  pool.ParallelFor(static_cast<std::size_t>(rows), static_cast<std::size_t>(grain),
                   [&](std::size_t begin, std::size_t end) {
                     for (std::size_t row = begin; row < end; ++row) {
                       work(static_cast<std::int64_t>(row));
                     }
                   });
}

// What a head of so many tokens may need at most, whatever the instruction set (kQueryRows).
std::size_t ScratchFloats(int length, int dim) {
  constexpr std::size_t kMostQueryRows = 8;
  const auto padded = static_cast<std::size_t>((length + kPanelCols - 1) / kPanelCols * kPanelCols);
  const auto dims = static_cast<std::size_t>((dim + kPanelCols - 1) / kPanelCols * kPanelCols);
  return 2 * padded * dims + kMostQueryRows * (dims + padded);
}

}  // namespace

void LayerNorm(const float* x, const float* delta, const float* delta_bias, const float* weight,
               const float* bias, float epsilon, std::int64_t rows, std::int64_t cols, float* out,
               ThreadPool& pool) {
  const auto run = Kernels().encoder.layer_norm_row;
  ForRows(rows, cols, pool, [&](std::int64_t row) {
    run(x + row * cols, delta == nullptr ? nullptr : delta + row * cols, delta_bias, weight, bias,
        epsilon, cols, out + row * cols);
  });
}

void BiasGelu(float* x, const float* bias, std::int64_t rows, std::int64_t cols, ThreadPool& pool) {
  const auto run = Kernels().encoder.bias_gelu_row;
  ForRows(rows, cols, pool, [&](std::int64_t row) { run(x + row * cols, bias, cols); });
}

void AttendBothWays(const float* qkv, const float* bias, int heads, int head_dim, float scale,
                    std::span<const int> lengths, float* out, ThreadPool& pool) {
  TARE_CHECK(heads > 0 && head_dim > 0);
  const auto run = Kernels().encoder.attend_whole;
  const std::int64_t hidden = std::int64_t{heads} * head_dim;
  std::vector<std::int64_t> first_row;
  first_row.reserve(lengths.size());
  std::int64_t rows = 0;
  for (const int length : lengths) {
    first_row.push_back(rows);
    rows += length;
  }
  const auto count = static_cast<std::size_t>(heads);
  pool.ParallelFor(lengths.size() * count, 1, [&](std::size_t begin, std::size_t end) {
    thread_local std::vector<float> scratch;
    for (std::size_t i = begin; i < end; ++i) {
      const int length = lengths[i / count];
      if (length == 0) continue;
      const std::size_t floats = ScratchFloats(length, head_dim);
      if (scratch.size() < floats) scratch.resize(floats);
      const std::int64_t row = first_row[i / count];
      const std::int64_t column = static_cast<std::int64_t>(i % count) * head_dim;
      const float* q = qkv + row * 3 * hidden + column;
      run({.q = q,
           .k = q + hidden,
           .v = q + 2 * hidden,
           .stride = 3 * hidden,
           .q_bias = bias + column,
           .k_bias = bias + hidden + column,
           .v_bias = bias + 2 * hidden + column,
           .length = length,
           .dim = head_dim,
           .scale = scale,
           .out = out + row * hidden + column,
           .out_stride = hidden,
           .scratch = scratch.data()});
    }
  });
}

}  // namespace tare::kernels
