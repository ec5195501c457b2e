// One instruction set's kernels as a table of functions. The tables are defined in translation
// units built for their instruction set (kernels_*.cc); only the table of the selected one is used.
#pragma once

#include <cstdint>

#include "kernels/attention_tile.h"
#include "kernels/packed_layout.h"

namespace tare::kernels {

struct KernelTable {
  const char* name;

  // y = x * W^T for panels [begin, end) and all rows of x.
  using MatMulPanels = void (*)(const WeightCells& w, const ActivationCells& x, const Output& out,
                                std::int64_t begin, std::int64_t end);
  MatMulPanels f32;
  MatMulPanels bf16;
  MatMulPanels int8;
  MatMulPanels int4;

  // One activation row of `cols` floats into the cells of row `slot` (0..15) of a block.
  // `codes`, `scales`, `sums` point at the block; every cell is written, padding as zeros.
  void (*quantize_row)(const float* x, std::int64_t cols, std::int64_t cells, int slot,
                       std::int8_t* codes, float* scales, std::int32_t* sums, float* float_sums);
  void (*round_row)(const float* x, std::int64_t cols, std::int64_t cells, int slot,
                    std::uint16_t* bf16);
  // Set where integer weights are multiplied with BF16 activations: the row in groups of 32 in the
  // order of ActivationCells::code_bf16, and the groups' sums. Null: with `quantize_row`'s codes.
  void (*round_row_for_codes)(const float* x, std::int64_t cols, std::int64_t groups, int slot,
                              std::uint16_t* bf16, float* sums);

  // Attention as attention_tile.h describes it: the state of one segment from nothing, a later
  // segment's state merged into an earlier one, and the outputs of a complete state.
  void (*attend_segment)(const AttentionTile& tile, int segment, float* state);
  void (*merge_states)(const AttentionTile& tile, float* into, const float* later);
  void (*finish_tile)(const AttentionTile& tile, const float* state);

  // The rows of elementwise.h.
  void (*rms_norm_row)(float* x, const float* delta, const float* weight, float epsilon,
                       std::int64_t cols, float* out);
  void (*silu_multiply_row)(const float* gate, const float* up, std::int64_t cols, float* out);
  void (*rope_neighbours)(float* head, const float* angles, int frequencies);
  void (*rope_halves)(float* head, const float* angles, int frequencies);
};

extern const KernelTable kScalarKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAmxKernels;
#endif

// The table of the instruction set in use.
const KernelTable& Kernels();

}  // namespace tare::kernels
