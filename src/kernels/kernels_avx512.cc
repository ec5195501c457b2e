// Kernels for AVX-512 with VNNI and BF16.
#if defined(__x86_64__)
#define TARE_KERNELS_NAMESPACE avx512
#define TARE_KERNELS_WITHOUT_MATMUL
#define TARE_KERNELS_WITHOUT_QUANTIZE_ROW
// AttendSegment is the name of the better one in attention_avx512.cc.
#define AttendSegment AttendSegmentPlain
#include "kernels/generic_kernels-inl.h"
#undef AttendSegment
#include "kernels/kernel_functions.h"

namespace tare::kernels {

void avx512::AttendSegmentGeneric(const AttentionTile& tile, int segment, float* state) {
  AttendSegmentPlain(tile, segment, state);
}

constinit const KernelTable kAmxKernels = {
    .name = "amx",
    .f32 = avx512::MatMulF32,
    .bf16 = amx::MatMulBf16,
    .int8 = amx::MatMulInt8,
    .int4 = amx::MatMulInt4,
    .quantize_row = avx512::QuantizeRow,
    .round_row = avx512::RoundRow,
    .attend_segment = amx::AttendSegment,
    .merge_states = avx512::MergeStates,
    .finish_tile = avx512::FinishTile,
    .rms_norm_row = avx512::RmsNormRow,
    .silu_multiply_row = avx512::SiluMultiplyRow,
    .weighted_sum_row = avx512::WeightedSumRow,
    .rope_neighbours = avx512::RopeNeighbours,
    .rope_halves = avx512::RopeHalves,
    .encoder = avx512::kEncoder,
};

constinit const KernelTable kAvx512Kernels = {
    .name = "avx512",
    .f32 = avx512::MatMulF32,
    .bf16 = avx512::MatMulBf16,
    .int8 = avx512::MatMulInt8,
    .int4 = avx512::MatMulInt4,
    .quantize_row = avx512::QuantizeRow,
    .round_row = avx512::RoundRow,
    .attend_segment = avx512::AttendSegment,
    .merge_states = avx512::MergeStates,
    .finish_tile = avx512::FinishTile,
    .rms_norm_row = avx512::RmsNormRow,
    .silu_multiply_row = avx512::SiluMultiplyRow,
    .weighted_sum_row = avx512::WeightedSumRow,
    .rope_neighbours = avx512::RopeNeighbours,
    .rope_halves = avx512::RopeHalves,
    .encoder = avx512::kEncoder,
};

}  // namespace tare::kernels

#endif  // __x86_64__
