// What a bidirectional encoder (BERT) does between its matrix products: layer norm, GELU, and
// attention in which every token of a sequence sees every other. Each row's result depends on its
// own sequence alone, not on what lies beside it.
//
// Thread safety: as MatMul: called by the thread that owns the pool.
// Sources: Ba, Kiros and Hinton 2016 (layer norm); Hendrycks and Gimpel 2016 (GELU).
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"

namespace tare::kernels {

// out = (v - mean(v)) / sqrt(variance(v) + epsilon) * weight + bias over rows of `cols` floats,
// where v = x, or x + delta + delta_bias when `delta` is not null: the residual connection, the
// bias of the product before it and the norm after it in one pass. out may be x.
void LayerNorm(const float* x, const float* delta, const float* delta_bias, const float* weight,
               const float* bias, float epsilon, std::int64_t rows, std::int64_t cols, float* out,
               ThreadPool& pool);

// x = g(x + bias) with g(v) = v/2 * (1 + erf(v / sqrt 2)), rows of `cols` floats. Within 4e-7 of
// the formula, or a part of 4e-7 where that is more.
void BiasGelu(float* x, const float* bias, std::int64_t rows, std::int64_t cols, ThreadPool& pool);

// Attention of all heads within each sequence. qkv: [rows, 3 * heads * head_dim], queries, keys and
// values side by side; bias: [3 * heads * head_dim], added to them. lengths: tokens of each
// sequence, whose rows follow one another and are `rows` in all. out: [rows, heads * head_dim].
void AttendBothWays(const float* qkv, const float* bias, int heads, int head_dim, float scale,
                    std::span<const int> lengths, float* out, ThreadPool& pool);

}  // namespace tare::kernels
