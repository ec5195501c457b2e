#include "model/ops.h"

#include <algorithm>
#include <cmath>

namespace tare::model {
namespace {

// Floats a thread should get at least: about 10 us of elementwise work, several times what waking
// it takes.
constexpr std::size_t kFloatsPerChunk = 16384;

// Several sums side by side, so that additions do not wait for each other.
float SumOfSquares(const float* x, int size) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += x[i + j] * x[i + j];
  }
  for (; i < size; ++i) lanes[i % kLanes] += x[i] * x[i];
  float sum = 0.0f;
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace

void ForRows(int rows, std::size_t row_floats, ThreadPool& pool,
             const std::function<void(int, int)>& work) {
  const std::size_t grain = std::max<std::size_t>(1, kFloatsPerChunk / row_floats);
  if (static_cast<std::size_t>(rows) <= grain) {
    if (rows > 0) work(0, rows);
    return;
  }
  pool.ParallelFor(static_cast<std::size_t>(rows), grain, [&](std::size_t begin, std::size_t end) {
    work(static_cast<int>(begin), static_cast<int>(end));
  });
}

void RmsNormRow(const float* x, const float* weight, int size, float epsilon, float* out) {
  const float mean = SumOfSquares(x, size) / static_cast<float>(size);
  const float scale = 1.0f / std::sqrt(mean + epsilon);
  for (int i = 0; i < size; ++i) out[i] = x[i] * scale * weight[i];
}

void AddRmsNormRow(float* x, const float* delta, const float* weight, int size, float epsilon,
                   float* out) {
  for (int i = 0; i < size; ++i) x[i] += delta[i];
  RmsNormRow(x, weight, size, epsilon, out);
}

void SiluMulRow(const float* gate, const float* up, int size, float* out) {
  for (int i = 0; i < size; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

}  // namespace tare::model
