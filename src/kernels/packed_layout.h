// The packed forms of weights and activations that every kernel reads, whatever its instruction
// set and number of rows.
//
// Weights W[n, k] are cut into panels of 16 output features. A panel is one contiguous run of
// cells; a cell covers 16 features and kCellDepth(type) inputs and is a whole number of 64-byte
// cache lines. Within a line the 16 features lie side by side, each with as many neighbouring
// inputs as fit into 32 bits, so that a line is an AVX-512 register for dot-product instructions
// and 16 lines are an AMX tile:
//
//   F32   cell = 1 k:   | n0 k0 | n1 k0 | ... | n15 k0 |                            1 line
//   BF16  cell = 32 k:  | n0 k0 k1 | n1 k0 k1 | ... | n15 k0 k1 |   k2 k3  ...     16 lines
//   INT8  cell = 64 k:  | n0 k0 k1 k2 k3 | ... | n15 k0 k1 k2 k3 |  k4..k7 ...     16 lines codes
//                       | f16 scale of k0..31 for n0..n15 | scale of k32..63 |      1 line
//   INT4  cell = 64 k:  byte b of line i holds in its low half the code INT8 has in byte b of
//                       line i, in its high half that of line i + 8                 8 lines codes
//                       | scales as INT8 |                                          1 line
//                       | minima, same shape |                (with_minimum only)   1 line
//
// INT4 codes are 0..15. Without minima the value is scale * (code - 8), with them
// scale * code + minimum. Features are padded to 16 and inputs to the cell depth with zero codes,
// scales and minima.
//
// Activations X[m, k] are cut into blocks of 16 rows; within a block the same cells follow each
// other, 64 bytes per row (32 BF16 values, or 32 codes of two bytes): 16 rows are an AMX tile.
// Activations of integer products are integers of 12 bits: each row and half of a cell (32 values)
// has a step, the power of two for which its largest magnitude lies in [1024, 2048), and value =
// step * code with -2048 <= code <= 2048. A code is kept as two signed bytes,
// code = 16 * high + low with -127 <= high <= 127 and -16 <= low <= 16, which byte dot products
// take as they are; where many rows meet INT8 on AMX both parts are kept as BF16 numbers with the
// step already applied. A half's line is its 32 high bytes, then its 32 low ones: against 16 times
// a 4-bit weight code and the code itself that is a single byte product. The sum of a half's codes
// takes minima and offsets out of the inner loops.
//
// 12 bits with a step for 32 values err less than BF16's 8 significant bits do (the error of a
// value is at most 2^-11 of the half's largest), and a dot product of 32 of them with codes of 8
// bits is below 2^24: it is the same number in integers, in BF16 tile products and as a float. So
// the order of float operations of an integer product is all that has to be fixed, and is part of
// the format, so that every instruction set and every number of rows gives the same bits. For row
// m, feature n, over halves of cells in rising order, with d the exact dot product of the codes:
//   y = fma(d * step, scale, y);  with minima then: y = fma(sum * step, minimum, y)
// and y starts as 0. d * step and sum * step are exact.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul.h"

namespace tare::kernels {

inline constexpr int kPanelCols = 16;  // output features of a panel
inline constexpr int kBlockRows = 16;  // activation rows of a block
inline constexpr int kLineBytes = 64;
inline constexpr int kGroup = 32;  // inputs that share a weight scale

inline constexpr int kBf16CellDepth = 32;
inline constexpr int kInt8CellDepth = 64;

// Byte offsets within the cells of integer types.
inline constexpr int kInt8Codes = 16 * kLineBytes;
inline constexpr int kInt4Codes = 8 * kLineBytes;

inline constexpr int kCodeBits = 11;  // an activation's code is at most 2^11 in magnitude
inline constexpr int kLowBits = 4;    // of them in its low byte
inline constexpr int kHighLimit = 127;

// What a kernel needs to know of a packed matrix.
struct WeightCells {
  WeightType type = WeightType::kF32;
  bool with_minimum = false;  // kInt4 only
  std::int64_t rows = 0;      // n, not padded
  std::int64_t cols = 0;      // k, not padded
  std::int64_t panels = 0;    // ceil(n / 16)
  std::int64_t cells = 0;     // cells of a panel
  std::int64_t cell_bytes = 0;
  const std::uint8_t* data = nullptr;
};

// Activation rows in the forms the kernels read; forms not asked for are null.
struct ActivationCells {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const float* f32 = nullptr;           // [rows, cols] as given
  std::int64_t cells = 0;               // of a block, in the form below that is set
  const std::uint16_t* bf16 = nullptr;  // [rows / 16][cells][16][32]
  const std::int8_t* codes = nullptr;   // [rows / 16][cells][2][16][high, low][32]
  const float* steps = nullptr;         // [rows / 16][cells][2][16]
  const std::int32_t* sums = nullptr;   // [rows / 16][cells][2][16] minus the sum of a half's codes
  const float* half_sums = nullptr;     // [rows / 16][cells][2][16] sum of codes * step
  // For many rows of INT8 on AMX, instead of codes, steps and sums: step * 16 * high and step * low
  // as BF16 in the order its tiles want (matmul_int8_amx.cc),
  // [rows / 16][cells][2][high, low][16][32].
  const std::uint16_t* tiles = nullptr;
};

// y: [rows, weight rows], `stride` floats between rows.
struct Output {
  float* y = nullptr;
  std::int64_t stride = 0;
};

}  // namespace tare::kernels
