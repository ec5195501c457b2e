// The reference kernels, built for the baseline instruction set.
#define TARE_KERNELS_NAMESPACE scalar
#include "kernels/generic_kernels-inl.h"

namespace tare::kernels {

constinit const KernelTable kScalarKernels = {
    .name = "scalar",
    .f32 = scalar::MatMulF32,
    .bf16 = scalar::MatMulBf16,
    .int8 = scalar::MatMulInt8,
    .int4 = scalar::MatMulInt4,
    .quantize_row = scalar::QuantizeRow,
    .round_row = scalar::RoundRow,
    .attend_segment = scalar::AttendSegment,
    .merge_states = scalar::MergeStates,
    .finish_tile = scalar::FinishTile,
    .rms_norm_row = scalar::RmsNormRow,
    .silu_multiply_row = scalar::SiluMultiplyRow,
    .weighted_sum_row = scalar::WeightedSumRow,
    .rope_neighbours = scalar::RopeNeighbours,
    .rope_halves = scalar::RopeHalves,
    .encoder = scalar::kEncoder,
};

}  // namespace tare::kernels
