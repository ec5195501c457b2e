#include "eval/awq.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/matmul.h"

namespace tare::eval {
namespace {

using kernels::StoredType;
using kernels::TensorView;
using kernels::WeightType;
using model::Checkpoint;

constexpr int kAlphas = 20;  // 0, 0.05, ... 0.95, as in the paper's programs
constexpr float kLeastMagnitude = 1e-4f;
constexpr std::size_t kRowsPerShare = 16;

// A matrix being worked on.
struct Matrix {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<float> values;

  TensorView view() const {
    return {StoredType::kF32, rows, cols, std::as_bytes(std::span(values))};
  }
};

std::string Name(int layer, std::string_view part) { return fmt::format("blk.{}.{}", layer, part); }

Result<Matrix> ReadMatrix(const Checkpoint& checkpoint, std::string name, ThreadPool& pool) {
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

// sum over the sample of |error(x)|^2, where `parts` are rounded after scaling by `scale`.
Result<double> ErrorOf(std::span<Matrix* const> parts, kernels::Activations& x,
                       std::int64_t sample_rows, std::span<const float> scale,
                       const RoundingRule& rule, ThreadPool& pool) {
  double sum = 0;
  std::vector<float> outputs;
  for (const Matrix* part : parts) {
    Matrix error = *part;
    ReplaceByScaledError(error.values, error.rows, error.cols, rule, scale, pool);
    // Eight significant bits are plenty for an error.
    TARE_TRY(const auto packed, kernels::PackedMatrix::Pack(WeightType::kBf16, error.view(), pool));
    outputs.resize(static_cast<std::size_t>(sample_rows * error.rows));
    kernels::MatMul(packed, x, outputs.data(), 0, pool);
    for (const float output : outputs) sum += double{output} * output;
  }
  return sum;
}

// Scales of least error for the inputs of `parts`. `tied`: inputs with the same entry get the same
// scale; empty: each its own.
Result<std::vector<float>> SearchScales(std::span<Matrix* const> parts,
                                        const InputStatistics& inputs, std::span<const int> tied,
                                        const RoundingRule& rule, ThreadPool& pool) {
  std::vector<float> magnitudes = inputs.MeanMagnitudes();
  if (!tied.empty()) {
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
  kernels::Activations x;
  x.Set(inputs.sample.data(), inputs.sample_rows, inputs.cols);
  std::vector<float> best;
  double least = std::numeric_limits<double>::max();
  for (int step = 0; step < kAlphas; ++step) {
    const float alpha = static_cast<float>(step) / kAlphas;
    std::vector<float> scale;
    for (const float magnitude : magnitudes) {
      scale.push_back(std::pow(std::max(magnitude, kLeastMagnitude), alpha));
    }
    const auto [low, high] = std::ranges::minmax(scale);
    for (float& s : scale) s /= std::sqrt(low * high);
    TARE_TRY(const double error, ErrorOf(parts, x, inputs.sample_rows, scale, rule, pool));
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

// The seven matrices of a layer, and what scales can go into.
struct Layer {
  Matrix q, k, v, output, gate, up, down;
  std::vector<float> attention_norm, feed_forward_norm, value_bias;

  // Mean squares of the inputs, after scaling; empty without statistics.
  std::vector<float> seen_by_qkv, seen_by_output, seen_by_gate_up, seen_by_down;
};

Result<Layer> ReadLayer(const Checkpoint& checkpoint, int layer, ThreadPool& pool) {
  Layer out;
  const std::pair<Matrix*, const char*> matrices[] = {
      {&out.q, "attn_q.weight"},      {&out.k, "attn_k.weight"},
      {&out.v, "attn_v.weight"},      {&out.output, "attn_output.weight"},
      {&out.gate, "ffn_gate.weight"}, {&out.up, "ffn_up.weight"},
      {&out.down, "ffn_down.weight"}};
  for (const auto& [matrix, part] : matrices) {
    TARE_TRY(*matrix, ReadMatrix(checkpoint, Name(layer, part), pool));
  }
  const std::pair<std::vector<float>*, const char*> vectors[] = {
      {&out.attention_norm, "attn_norm.weight"},
      {&out.feed_forward_norm, "ffn_norm.weight"},
      {&out.value_bias, "attn_v.bias"}};
  for (const auto& [values, part] : vectors) {
    if (!checkpoint.Find(Name(layer, part))) continue;
    TARE_TRY(Matrix row, ReadMatrix(checkpoint, Name(layer, part), pool));
    *values = std::move(row.values);
  }
  return out;
}

class LayerScaler {
 public:
  LayerScaler(const InputCollector& inputs, const RoundingRule& rule, ThreadPool& pool)
      : inputs_(inputs), rule_(rule), pool_(pool) {}

  // Scales for the shared input of `parts`, put into their columns; `seen` gets what they see then.
  Result<std::vector<float>> Scale(std::span<Matrix* const> parts, std::span<const int> tied,
                                   std::vector<float>& seen) {
    std::string name;
    for (const Matrix* part : parts) name += (name.empty() ? "" : "+") + part->name;
    const InputStatistics* inputs = inputs_.Find(name);
    if (inputs == nullptr || inputs->cols != parts.front()->cols || inputs->sample_rows == 0) {
      return Fail(ErrorKind::kInternal, "no inputs of {} were seen during calibration", name);
    }
    TARE_TRY(std::vector<float> scale, SearchScales(parts, *inputs, tied, rule_, pool_));
    for (Matrix* part : parts) ScaleColumns(*part, scale);
    seen = inputs->MeanSquares();
    for (std::size_t i = 0; i < seen.size(); ++i) seen[i] /= scale[i] * scale[i];
    return scale;
  }

 private:
  const InputCollector& inputs_;
  const RoundingRule& rule_;
  ThreadPool& pool_;
};

Status ScaleLayer(Layer& layer, const model::ModelConfig& config, LayerScaler scaler) {
  Matrix* const qkv[] = {&layer.q, &layer.k, &layer.v};
  TARE_TRY(const auto before_qkv, scaler.Scale(qkv, {}, layer.seen_by_qkv));
  Divide(layer.attention_norm, before_qkv);

  // Input d of query head h comes from row d of the value head that h shares.
  std::vector<int> value_row;
  const int share = config.heads / config.kv_heads;
  for (int i = 0; i < config.heads * config.head_dim; ++i) {
    value_row.push_back(i / config.head_dim / share * config.head_dim + i % config.head_dim);
  }
  Matrix* const output[] = {&layer.output};
  TARE_TRY(const auto before_output, scaler.Scale(output, value_row, layer.seen_by_output));
  std::vector<float> by_value_row(static_cast<std::size_t>(layer.v.rows), 1.0f);
  for (std::size_t i = 0; i < value_row.size(); ++i) {
    by_value_row[static_cast<std::size_t>(value_row[i])] = before_output[i];
  }
  DivideRows(layer.v, by_value_row);
  if (!layer.value_bias.empty()) Divide(layer.value_bias, by_value_row);

  Matrix* const gate_up[] = {&layer.gate, &layer.up};
  TARE_TRY(const auto before_gate_up, scaler.Scale(gate_up, {}, layer.seen_by_gate_up));
  Divide(layer.feed_forward_norm, before_gate_up);

  Matrix* const down[] = {&layer.down};
  TARE_TRY(const auto before_down, scaler.Scale(down, {}, layer.seen_by_down));
  DivideRows(layer.up, before_down);
  return {};
}

}  // namespace

Status CheckQuantizable(const Checkpoint& checkpoint, const RoundingRule& rule) {
  const model::ModelConfig& config = checkpoint.config();
  if (config.experts || config.latent) {
    return Fail(ErrorKind::kUnsupported,
                "{}: models of family {} cannot be quantised here; those with dense layers and "
                "grouped-query attention (llama, qwen2, qwen3) can",
                checkpoint.name(), config.family);
  }
  if (rule.bits == 8 && rule.zero_point) {
    return FailParam("zero_point", "8-bit weights have no zero points; leave out --zero-point");
  }
  if (rule.group <= 0 || rule.group % 32 != 0) {
    return FailParam("group", "a group of {} is not possible; multiples of 32 are", rule.group);
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    for (const char* part :
         {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
      const std::string name = Name(layer, part) + ".weight";
      const auto stored = checkpoint.Find(name);
      if (!stored || stored->shape.size() != 2) {
        return Fail(ErrorKind::kCorrupt, "{}: tensor '{}' is {}", checkpoint.name(),
                    checkpoint.FileName(name), stored ? "no matrix" : "missing");
      }
      if (stored->shape[1] % 32 != 0) {
        return Fail(ErrorKind::kUnsupported, "{}: tensor '{}' has {} inputs, no multiple of 32",
                    checkpoint.name(), stored->name, stored->shape[1]);
      }
    }
  }
  return {};
}

Status QuantizeLayer(const Checkpoint& checkpoint, int layer, const RoundingRule& rule,
                     const InputCollector* inputs, ThreadPool& pool, QuantizedTensors& out) {
  TARE_TRY(Layer parts, ReadLayer(checkpoint, layer, pool));
  if (inputs != nullptr) {
    TARE_RETURN_IF_ERROR(ScaleLayer(parts, checkpoint.config(), LayerScaler(*inputs, rule, pool)));
    out.vectors[Name(layer, "attn_norm.weight")] = std::move(parts.attention_norm);
    out.vectors[Name(layer, "ffn_norm.weight")] = std::move(parts.feed_forward_norm);
    if (!parts.value_bias.empty()) {
      out.vectors[Name(layer, "attn_v.bias")] = std::move(parts.value_bias);
    }
  }
  const std::pair<const Matrix*, const std::vector<float>*> matrices[] = {
      {&parts.q, &parts.seen_by_qkv},        {&parts.k, &parts.seen_by_qkv},
      {&parts.v, &parts.seen_by_qkv},        {&parts.output, &parts.seen_by_output},
      {&parts.gate, &parts.seen_by_gate_up}, {&parts.up, &parts.seen_by_gate_up},
      {&parts.down, &parts.seen_by_down}};
  for (const auto& [matrix, seen] : matrices) {
    out.matrices[matrix->name] =
        RoundMatrix(matrix->values, matrix->rows, matrix->cols, rule, *seen, pool);
  }
  return {};
}

}  // namespace tare::eval
