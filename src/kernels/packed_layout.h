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
// scales and minima. Behind the last cell of a panel of integers lies one more line, its features'
// units as 16 floats (below).
//
// Activations X[m, k] are cut into blocks of 16 rows; within a block the same cells follow each
// other, 64 bytes per row and tile (32 BF16 values, or 64 bytes of codes): 16 rows are an AMX tile.
//
// Integer products are sums of integers, exact until the last step. Both sides are numbers of 16
// bits with one unit for all of a row:
// - A row of activations has the step largest / 32512; value = step * code, where a code is kept as
//   two signed bytes, code = 256 * high + low with -127 <= high, low <= 127. (A code whose low byte
//   would be -128 is one more.)
// - A feature's weights are, in terms of its unit, scale * code + minimum = unit * (m * code + z),
//   with m = nearest(scale / unit) and z = nearest(minimum / unit), or z = -8 m where codes stand
//   for 8 less. The unit is chosen when packing so that |m * code + z| < 2^15.
// With S the sum over all inputs of (m * code + z) * activation code, a 64-bit integer,
//   y = float(S) * (unit * step)
// in single precision. No order of additions is prescribed because none matters: every instruction
// set, every number of rows and every cut of the work gives the same bits.
//
// One can thus multiply 32 codes at a time and m at the end, which a few rows want; or make numbers
// of 16 bits first and split them into bytes, which many rows want, as AMX then sums all inputs
// without leaving its tiles. m has 8 bits, so rounding it errs by at most 2^-9 of the row's largest
// scale, less than quantising erred by; 16 bits for a row of activations beat 8 bits for 32 of them
// as long as the row's largest is not 256 times that of most.
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

inline constexpr int kLowBits = 8;  // of an activation's code, in its low byte
inline constexpr float kLargestCode = 127 * 256;
inline constexpr float kLargestFactor = 255;  // m
inline constexpr float kLargestSum = 32752;   // |m * code + z|, but for rounding

inline constexpr std::int64_t SumTiles(std::int64_t cells) { return (2 * cells + 63) / 64; }
inline constexpr int kSumBytes = 3;

// What a kernel needs to know of a packed matrix.
struct WeightCells {
  WeightType type = WeightType::kF32;
  bool with_minimum = false;  // kInt4 only
  std::int64_t rows = 0;      // n, not padded
  std::int64_t cols = 0;      // k, not padded
  std::int64_t panels = 0;    // ceil(n / 16)
  std::int64_t cells = 0;     // cells of a panel
  std::int64_t cell_bytes = 0;
  std::int64_t panel_bytes = 0;
  const std::uint8_t* data = nullptr;
};

// Activation rows in the forms the kernels read; forms not asked for are null.
struct ActivationCells {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const float* f32 = nullptr;           // [rows, cols] as given
  std::int64_t cells = 0;               // of a block, in the form below that is set
  const std::uint16_t* bf16 = nullptr;  // [rows / 16][cells][16][32]
  const std::int8_t* codes = nullptr;   // [rows / 16][cells][high, low][16][64]
  const float* steps = nullptr;         // [rows / 16][16]
  const std::int32_t* sums = nullptr;   // [rows / 16][cells][2][16] minus the sum of a half's codes
  // The sums without the minus as bytes, highest first, as tiles whose 64 columns are halves:
  // [rows / 16][SumTiles(cells)][3][16][64]. Columns beyond the last half hold anything.
  const std::uint8_t* sum_bytes = nullptr;
};

// y: [rows, weight rows], `stride` floats between rows.
struct Output {
  float* y = nullptr;
  std::int64_t stride = 0;
};

}  // namespace tare::kernels
