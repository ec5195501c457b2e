// One instruction set's kernels as a table of functions. The tables are defined in translation
// units built for their instruction set (kernels_*.cc); only the table of the selected one is used.
#pragma once

#include <cstdint>

#include "kernels/attention_tile.h"
#include "kernels/packed_layout.h"

namespace tare::kernels {

// A block of activation rows as codes, to be written; the parts of ActivationCells.
struct CodeRows {
  std::int8_t* codes;
  float* steps;
  std::int32_t* sums;
  std::uint8_t* sum_bytes;
};

// One head of one sequence for encoder_kernels.h; q, k and v have `stride` floats between tokens.
struct WholeHead {
  const float* q;
  const float* k;
  const float* v;
  std::int64_t stride;
  const float* q_bias;  // [dim], as the next two
  const float* k_bias;
  const float* v_bias;
  int length;  // tokens
  int dim;
  float scale;
  float* out;
  std::int64_t out_stride;
  float* scratch;
};

// The rows of encoder_kernels.h.
struct EncoderKernels {
  void (*layer_norm_row)(const float* x, const float* delta, const float* delta_bias,
                         const float* weight, const float* bias, float epsilon, std::int64_t cols,
                         float* out);
  void (*bias_gelu_row)(float* x, const float* bias, std::int64_t cols);
  void (*attend_whole)(const WholeHead& head);
};

struct KernelTable {
  const char* name;

  // y = x * W^T for panels [begin, end) and all rows of x.
  using MatMulPanels = void (*)(const WeightCells& w, const ActivationCells& x, const Output& out,
                                std::int64_t begin, std::int64_t end);
  MatMulPanels f32;
  MatMulPanels bf16;
  MatMulPanels int8;
  MatMulPanels int4;

  // One activation row of `cols` floats into the cells of row `slot` (0..15) of a block, to which
  // `to` points; every cell is written, padding as zeros.
  void (*quantize_row)(const float* x, std::int64_t cols, std::int64_t cells, int slot,
                       const CodeRows& to);
  void (*round_row)(const float* x, std::int64_t cols, std::int64_t cells, int slot,
                    std::uint16_t* bf16);

  // Attention as attention_tile.h describes it: the state of one segment from nothing, a later
  // segment's state merged into an earlier one, and the outputs of a complete state.
  void (*attend_segment)(const AttentionTile& tile, int segment, float* state);
  void (*merge_states)(const AttentionTile& tile, float* into, const float* later);
  void (*finish_tile)(const AttentionTile& tile, const float* state);

  // The rows of elementwise.h.
  void (*rms_norm_row)(float* x, const float* delta, const float* weight, float epsilon,
                       std::int64_t cols, float* out);
  void (*silu_multiply_row)(const float* gate, const float* up, std::int64_t cols, float* out);
  void (*weighted_sum_row)(const float* const* rows, const float* weights, int count,
                           std::int64_t cols, bool add, float* out);
  void (*rope_neighbours)(float* head, const float* angles, int frequencies);
  void (*rope_halves)(float* head, const float* angles, int frequencies);
  EncoderKernels encoder;
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
