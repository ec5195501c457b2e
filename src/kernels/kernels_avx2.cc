// Kernels for AVX2 with FMA and F16C.
#if defined(__x86_64__)
#define TARE_KERNELS_NAMESPACE avx2
#define TARE_KERNELS_WITHOUT_INTEGER_MATMUL
#include "kernels/generic_kernels-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels {

constinit const KernelTable kAvx2Kernels = {
    .name = "avx2",
    .f32 = avx2::MatMulF32,
    .bf16 = avx2::MatMulBf16,
    .int8 = avx2::MatMulInt8,
    .int4 = avx2::MatMulInt4,
    .quantize_row = avx2::QuantizeRow,
    .round_row = avx2::RoundRow,
    .attend_segment = avx2::AttendSegment,
    .merge_states = avx2::MergeStates,
    .finish_tile = avx2::FinishTile,
    .rms_norm_row = avx2::RmsNormRow,
    .silu_multiply_row = avx2::SiluMultiplyRow,
    .weighted_sum_row = avx2::WeightedSumRow,
    .rope_neighbours = avx2::RopeNeighbours,
    .rope_halves = avx2::RopeHalves,
    .encoder = avx2::kEncoder,
};

}  // namespace tare::kernels

#endif  // __x86_64__
