// The mechanics of activation-aware rounding: matrices as floats, and the search for scales of
// their inputs that leave the least error in their outputs.
//
// Thread safety: none; calls share their pool with nobody.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "eval/coded_matrix.h"
#include "eval/input_statistics.h"
#include "kernels/tensor_view.h"
#include "model/checkpoint.h"

namespace tare::eval {

// A matrix being worked on.
struct Matrix {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<float> values;  // [rows, cols]

  kernels::TensorView view() const {
    return {kernels::StoredType::kF32, rows, cols, std::as_bytes(std::span(values))};
  }
};

Result<Matrix> ReadMatrix(const model::Checkpoint& checkpoint, std::string name, ThreadPool& pool);

// Matrices that take the same inputs, and what those were.
struct SharedInput {
  std::vector<Matrix> parts;
  const InputStatistics* inputs = nullptr;  // or null: none were seen
  std::vector<float> seen;                  // mean squares after scaling; empty: round plainly
};

// Scales of least error for the columns of all of `places`, which take inputs of one source of
// `magnitudes`: mean|x|^alpha, for the best alpha of twenty. The error of a place counts as often
// as it was used. `tied`: columns with the same entry get the same scale; empty: each its own. All
// ones when no place has inputs.
Result<std::vector<float>> SearchScales(std::span<const SharedInput* const> places,
                                        std::vector<float> magnitudes, std::span<const int> tied,
                                        const RoundingRule& rule, ThreadPool& pool);

void ScaleColumns(Matrix& matrix, std::span<const float> by);
void DivideRows(Matrix& matrix, std::span<const float> by);
void Divide(std::vector<float>& values, std::span<const float> by);
// What the inputs' mean squares are once their columns are scaled.
std::vector<float> SeenAfter(const InputStatistics& inputs, std::span<const float> scale);

}  // namespace tare::eval
