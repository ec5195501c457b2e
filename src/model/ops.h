// Elementwise operations of a decoder over rows of floats, shared out over a pool when there is
// enough to do. Norms as in RMSNorm (arXiv 1910.07467), gate as in SwiGLU (arXiv 2002.05202).
#pragma once

#include <cstddef>
#include <functional>

#include "base/thread_pool.h"

namespace tare::model {

// Calls work(first, last) over [0, rows); a few rows are done at once by the caller, since waking
// the pool costs more than they do. `row_floats` is about how many floats a row touches.
void ForRows(int rows, std::size_t row_floats, ThreadPool& pool,
             const std::function<void(int first, int last)>& work);

// out = x * rsqrt(mean(x^2) + epsilon) * weight. In place when out == x.
void RmsNormRow(const float* x, const float* weight, int size, float epsilon, float* out);

// x += delta, then out = norm of x.
void AddRmsNormRow(float* x, const float* delta, const float* weight, int size, float epsilon,
                   float* out);

// out = silu(gate) * up.
void SiluMulRow(const float* gate, const float* up, int size, float* out);

}  // namespace tare::model
