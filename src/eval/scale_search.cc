#include "eval/scale_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/matmul.h"

namespace tare::eval {
namespace {

constexpr int kAlphas = 20;  // 0, 0.05, ... 0.95, as in the paper's programs
constexpr float kLeastMagnitude = 1e-4f;
constexpr std::size_t kRowsPerShare = 16;

// The mean over tied entries, in place of each.
void Tie(std::span<const int> tied, std::vector<float>& magnitudes) {
  if (tied.empty()) return;
  const auto ties = static_cast<std::size_t>(*std::ranges::max_element(tied)) + 1;
  std::vector<float> sums(ties), counts(ties);
  for (std::size_t i = 0; i < tied.size(); ++i) {
    sums[static_cast<std::size_t>(tied[i])] += magnitudes[i];
    counts[static_cast<std::size_t>(tied[i])] += 1;
  }
  for (std::size_t i = 0; i < tied.size(); ++i) {
    const auto tie = static_cast<std::size_t>(tied[i]);
    magnitudes[i] = sums[tie] / counts[tie];
  }
}

// sum over the sample of |error(x)|^2, where the parts are rounded after scaling by `scale`.
Result<double> ErrorOf(const SharedInput& place, kernels::Activations& x,
                       std::span<const float> scale, const RoundingRule& rule, ThreadPool& pool) {
  double sum = 0;
  std::vector<float> outputs;
  for (const Matrix& part : place.parts) {
    Matrix error = part;
    ReplaceByScaledError(error.values, error.rows, error.cols, rule, scale, pool);
    // Eight significant bits are plenty for an error.
    TARE_TRY(const auto packed,
             kernels::PackedMatrix::Pack(kernels::WeightType::kBf16, error.view(), pool));
    outputs.resize(static_cast<std::size_t>(place.inputs->sample_rows * error.rows));
    kernels::MatMul(packed, x, outputs.data(), 0, pool);
    for (const float output : outputs) sum += double{output} * output;
  }
  return sum;
}

}  // namespace

Result<Matrix> ReadMatrix(const model::Checkpoint& checkpoint, std::string name, ThreadPool& pool) {
  TARE_TRY(const model::TensorValues stored, checkpoint.Values(name, pool));
  Matrix matrix{std::move(name), stored.view.rows, stored.view.cols, {}};
  const auto cols = static_cast<std::size_t>(matrix.cols);
  matrix.values.resize(static_cast<std::size_t>(matrix.rows) * cols);
  pool.ParallelFor(static_cast<std::size_t>(matrix.rows), kRowsPerShare,
                   [&](std::size_t begin, std::size_t end) {
                     for (std::size_t row = begin; row < end; ++row) {
                       kernels::DequantizeRow(stored.view, static_cast<std::int64_t>(row),
                                              {matrix.values.data() + row * cols, cols});
                     }
                   });
  return matrix;
}

Result<std::vector<float>> SearchScales(std::span<const SharedInput* const> places,
                                        std::vector<float> magnitudes, std::span<const int> tied,
                                        const RoundingRule& rule, ThreadPool& pool) {
  Tie(tied, magnitudes);
  std::vector<kernels::Activations> samples(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const InputStatistics& inputs = *places[i]->inputs;
    samples[i].Set(inputs.sample.data(), inputs.sample_rows, inputs.cols);
  }
  std::vector<float> best(magnitudes.size(), 1.0f);
  double least = std::numeric_limits<double>::max();
  for (int step = 0; step < kAlphas && !places.empty(); ++step) {
    const float alpha = static_cast<float>(step) / kAlphas;
    std::vector<float> scale;
    for (const float magnitude : magnitudes) {
      scale.push_back(std::pow(std::max(magnitude, kLeastMagnitude), alpha));
    }
    const auto [low, high] = std::ranges::minmax(scale);
    for (float& s : scale) s /= std::sqrt(low * high);
    double error = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const InputStatistics& inputs = *places[i]->inputs;
      TARE_TRY(const double one, ErrorOf(*places[i], samples[i], scale, rule, pool));
      error += one * static_cast<double>(inputs.rows) / static_cast<double>(inputs.sample_rows);
    }
    if (error < least) {
      least = error;
      best = std::move(scale);
    }
  }
  return best;
}

void ScaleColumns(Matrix& matrix, std::span<const float> by) {
  for (std::size_t i = 0; i < matrix.values.size(); ++i) matrix.values[i] *= by[i % by.size()];
}

void DivideRows(Matrix& matrix, std::span<const float> by) {
  const auto cols = static_cast<std::size_t>(matrix.cols);
  for (std::size_t i = 0; i < matrix.values.size(); ++i) matrix.values[i] /= by[i / cols];
}

void Divide(std::vector<float>& values, std::span<const float> by) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] /= by[i];
}

std::vector<float> SeenAfter(const InputStatistics& inputs, std::span<const float> scale) {
  std::vector<float> seen = inputs.MeanSquares();
  for (std::size_t i = 0; i < seen.size(); ++i) seen[i] /= scale[i] * scale[i];
  return seen;
}

}  // namespace tare::eval
