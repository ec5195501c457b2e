// The kernels of every instruction set by name; each namespace is built with its own flags. Sets
// take over from the one below where they have nothing better.
#pragma once

#include "kernels/kernel_table.h"

namespace tare::kernels {

#define TARE_DECLARE_MATMUL(name)                                                                  \
  void name(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin, \
            std::int64_t end)

namespace avx2 {
TARE_DECLARE_MATMUL(MatMulInt8);
TARE_DECLARE_MATMUL(MatMulInt4);
}  // namespace avx2

namespace avx512 {
TARE_DECLARE_MATMUL(MatMulF32);
TARE_DECLARE_MATMUL(MatMulBf16);
TARE_DECLARE_MATMUL(MatMulInt8);
TARE_DECLARE_MATMUL(MatMulInt4);
void QuantizeRow(const float* x, std::int64_t cols, std::int64_t cells, int slot,
                 const CodeRows& to);
void AttendSegment(const AttentionTile& tile, int segment, float* state);
void AttendSegmentGeneric(const AttentionTile& tile, int segment, float* state);
}  // namespace avx512

namespace amx {
TARE_DECLARE_MATMUL(MatMulBf16);
TARE_DECLARE_MATMUL(MatMulInt8);
TARE_DECLARE_MATMUL(MatMulInt4);
TARE_DECLARE_MATMUL(MatMulInt4Blocks);  // of at most kMostIntegerCells
void AttendSegment(const AttentionTile& tile, int segment, float* state);
}  // namespace amx

#undef TARE_DECLARE_MATMUL

}  // namespace tare::kernels
