// The row-wise steps between matrix products, vectorised for the instruction set in use. Each row's
// result depends on that row alone.
//
// Thread safety: as MatMul: called by the thread that owns the pool.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"

namespace tare::kernels {

// Root-mean-square norm (Zhang and Sennrich 2019) of rows of `cols` floats:
// out = x / sqrt(mean(x^2) + epsilon) * weight. With `delta` not null, x += delta first and the sum
// is kept in x: the residual connection and the norm after it in one pass.
void RmsNorm(float* x, const float* delta, const float* weight, float epsilon, std::int64_t rows,
             std::int64_t cols, float* out, ThreadPool& pool);

// One row of a norm without residual, on the calling thread.
void RmsNormRow(const float* x, const float* weight, float epsilon, std::int64_t cols, float* out);

// out[row, i] = silu(gate[row, i]) * up[row, i]; gate and up have `stride` floats between rows (for
// example one matrix [rows, gate | up]), out has `cols`.
void SiluMultiply(const float* gate, const float* up, std::int64_t stride, std::int64_t rows,
                  std::int64_t cols, float* out, ThreadPool& pool);

// One row of it, on the calling thread.
void SiluMultiplyRow(const float* gate, const float* up, std::int64_t cols, float* out);

// out[row] = sum over j < count of weights[row, j] * y[places[row, j]], on top of what is in out
// when `add`. y and out have `cols` floats a row; places has rows * count entries, as weights.
void WeightedSum(const float* y, std::int64_t cols, std::span<const std::int32_t> places,
                 std::span<const float> weights, int count, bool add, float* out, ThreadPool& pool);

// x += delta, `count` floats.
void AddTo(float* x, const float* delta, std::int64_t count, ThreadPool& pool);

// How a rotary embedding pairs the dimensions of a head: neighbours (GGUF's llama weights) or the
// first half with the second (Hugging Face's layout).
enum class RopePairs { kNeighbours, kHalves };

// Cosine and sine of position * frequency: out[positions, frequencies, 2]; made once a step and
// shared by all layers. `magnitude` scales both (YaRN's attention factor; 1 otherwise).
void RopeAngles(std::span<const int> positions, std::span<const float> frequencies, float magnitude,
                std::span<float> out);

// Rotates `heads` heads of each row of x in place; `stride` floats between rows. The first
// 2 * frequencies dimensions of a head are rotated, the others stay.
void ApplyRope(float* x, std::int64_t stride, std::int64_t rows, int heads, int head_dim,
               std::span<const float> angles, int frequencies, RopePairs pairs, ThreadPool& pool);

}  // namespace tare::kernels
