#include "kernels/elementwise.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/kernel_table.h"

namespace tare::kernels {
namespace {

// Floats that are worth waking another thread for: about 2 us of work.
constexpr std::int64_t kFloatsPerShare = 8192;

// Calls work(row) for all rows, in parallel when there is enough to do.
template <typename Work>
void ForRows(std::int64_t rows, std::int64_t floats_per_row, ThreadPool& pool, const Work& work) {
  const std::int64_t grain = std::max<std::int64_t>(1, kFloatsPerShare / floats_per_row);
  pool.ParallelFor(static_cast<std::size_t>(rows), static_cast<std::size_t>(grain),
                   [&](std::size_t begin, std::size_t end) {
                     for (auto row = static_cast<std::int64_t>(begin);
                          row < static_cast<std::int64_t>(end); ++row) {
                       work(row);
                     }
                   });
}

}  // namespace

void RmsNorm(float* x, const float* delta, const float* weight, float epsilon, std::int64_t rows,
             std::int64_t cols, float* out, ThreadPool& pool) {
  TARE_CHECK(cols > 0);
  const KernelTable& kernels = Kernels();
  ForRows(rows, cols, pool, [&](std::int64_t row) {
    kernels.rms_norm_row(x + row * cols, delta == nullptr ? nullptr : delta + row * cols, weight,
                         epsilon, cols, out + row * cols);
  });
}

void RmsNormRow(const float* x, const float* weight, float epsilon, std::int64_t cols, float* out) {
  // Without a residual x is only read.
  Kernels().rms_norm_row(const_cast<float*>(x), nullptr, weight, epsilon, cols, out);
}

void SiluMultiply(const float* gate, const float* up, std::int64_t stride, std::int64_t rows,
                  std::int64_t cols, float* out, ThreadPool& pool) {
  TARE_CHECK(cols > 0);
  const KernelTable& kernels = Kernels();
  ForRows(rows, 2 * cols, pool, [&](std::int64_t row) {
    kernels.silu_multiply_row(gate + row * stride, up + row * stride, cols, out + row * cols);
  });
}

void SiluMultiplyRow(const float* gate, const float* up, std::int64_t cols, float* out) {
  Kernels().silu_multiply_row(gate, up, cols, out);
}

void WeightedSum(const float* y, std::int64_t cols, std::span<const std::int32_t> places,
                 std::span<const float> weights, int count, bool add, float* out,
                 ThreadPool& pool) {
  TARE_CHECK(count > 0 && places.size() == weights.size());
  const KernelTable& kernels = Kernels();
  const auto rows = static_cast<std::int64_t>(places.size()) / count;
  ForRows(rows, cols * count, pool, [&](std::int64_t row) {
    constexpr int kAtOnce = 16;
    for (int first = 0; first < count; first += kAtOnce) {
      const float* from[kAtOnce];
      const int here = std::min(kAtOnce, count - first);
      const auto at = static_cast<std::size_t>(row * count + first);
      for (int j = 0; j < here; ++j) {
        from[j] = y + places[at + static_cast<std::size_t>(j)] * cols;
      }
      kernels.weighted_sum_row(from, weights.data() + at, here, cols, add || first > 0,
                               out + row * cols);
    }
  });
}

void AddTo(float* x, const float* delta, std::int64_t count, ThreadPool& pool) {
  pool.ParallelFor(static_cast<std::size_t>(count), static_cast<std::size_t>(kFloatsPerShare),
                   [&](std::size_t begin, std::size_t end) {
                     for (std::size_t i = begin; i < end; ++i) x[i] += delta[i];
                   });
}

void RopeAngles(std::span<const int> positions, std::span<const float> frequencies, float magnitude,
                std::span<float> out) {
  TARE_CHECK(out.size() >= positions.size() * frequencies.size() * 2);
  float* to = out.data();
  for (const int position : positions) {
    for (const float frequency : frequencies) {
      // The product in double: in float a position of 100,000 would lose the angle's third digit.
      const double angle = static_cast<double>(position) * static_cast<double>(frequency);
      *to++ = static_cast<float>(std::cos(angle)) * magnitude;
      *to++ = static_cast<float>(std::sin(angle)) * magnitude;
    }
  }
}

void ApplyRope(float* x, std::int64_t stride, std::int64_t rows, int heads, int head_dim,
               std::span<const float> angles, int frequencies, RopePairs pairs, ThreadPool& pool) {
  TARE_CHECK(2 * frequencies <= head_dim &&
             angles.size() >=
                 static_cast<std::size_t>(rows) * 2 * static_cast<std::size_t>(frequencies));
  const KernelTable& kernels = Kernels();
  const auto rotate =
      pairs == RopePairs::kNeighbours ? kernels.rope_neighbours : kernels.rope_halves;
  ForRows(rows, std::int64_t{heads} * head_dim, pool, [&](std::int64_t row) {
    for (int head = 0; head < heads; ++head) {
      rotate(x + row * stride + std::int64_t{head} * head_dim,
             angles.data() + row * 2 * frequencies, frequencies);
    }
  });
}

}  // namespace tare::kernels
