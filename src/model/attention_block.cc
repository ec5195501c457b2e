// Grouped-query attention: q, k and v from one stacked matrix, then one pass over its output that
// adds biases, normalises heads, rotates and lays q, k and v apart.
#include <cmath>
#include <cstring>

#include "model/blocks.h"
#include "model/ops.h"

namespace tare::model {
namespace {

class GroupedQueryAttention : public AttentionBlock {
 public:
  void Forward(Step& step, int layer, const float* x, float* out) const override {
    const auto rows = static_cast<std::size_t>(step.rows);
    Workspace& ws = step.workspace;
    const std::size_t width = query_size_ + 2 * key_size_;
    float* projected = ws.projected.Get(rows * width);
    float* q = ws.queries.Get(rows * query_size_);
    float* k = ws.keys.Get(rows * key_size_);
    float* v = ws.values.Get(rows * key_size_);
    float* mixed = ws.mixed.Get(rows * query_size_);

    step.activations.Set(x, step.rows, qkv_.cols());
    kernels::MatMul(qkv_, step.activations, projected, 0, step.pool);
    ForRows(step.rows, width, step.pool, [&](int first, int last) {
      for (int row = first; row < last; ++row) {
        const auto r = static_cast<std::size_t>(row);
        float* from = projected + r * width;
        if (!bias_.empty()) {
          for (std::size_t i = 0; i < width; ++i) from[i] += bias_[i];
        }
        const auto half = static_cast<std::size_t>(step.rope_half);
        const float* cosines = step.cosines + r * half;
        const float* sines = step.sines + r * half;
        FinishHeads(from, heads_, query_norm_, step.rope_half, cosines, sines);
        FinishHeads(from + query_size_, kv_heads_, key_norm_, step.rope_half, cosines, sines);
        std::memcpy(q + r * query_size_, from, query_size_ * sizeof(float));
        std::memcpy(k + r * key_size_, from + query_size_, key_size_ * sizeof(float));
        std::memcpy(v + r * key_size_, from + query_size_ + key_size_, key_size_ * sizeof(float));
      }
    });
    step.kv.Write(layer, step.sequences, k, v, step.pool);
    kernels::Attention(step.kv, layer, heads_, scale_, step.sequences, q, mixed, step.pool);
    step.activations.Set(mixed, step.rows, output_.cols());
    kernels::MatMul(output_, step.activations, out, 0, step.pool);
  }

  std::size_t bytes() const override { return qkv_.bytes() + output_.bytes(); }

  static Result<std::unique_ptr<AttentionBlock>> Load(WeightLoader& weights,
                                                      const ModelConfig& config, int layer) {
    auto block = std::make_unique<GroupedQueryAttention>();
    block->heads_ = config.heads;
    block->kv_heads_ = config.kv_heads;
    block->head_dim_ = config.head_dim;
    block->epsilon_ = config.norm_epsilon;
    block->scale_ = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
    const std::int64_t q_rows = std::int64_t{config.heads} * config.head_dim;
    const std::int64_t k_rows = std::int64_t{config.kv_heads} * config.head_dim;
    block->query_size_ = static_cast<std::size_t>(q_rows);
    block->key_size_ = static_cast<std::size_t>(k_rows);
    const RotatedHeads rotated{config.head_dim, config.rope.dims};

    const MatrixPart parts[] = {{LayerName(layer, "attn_q.weight"), q_rows, rotated},
                                {LayerName(layer, "attn_k.weight"), k_rows, rotated},
                                {LayerName(layer, "attn_v.weight"), k_rows, {}}};
    TARE_TRY(block->qkv_, weights.Stacked(parts, config.hidden));
    TARE_TRY(block->output_,
             weights.Matrix(LayerName(layer, "attn_output.weight"), config.hidden, q_rows));
    if (config.attention_bias) {
      TARE_TRY(block->bias_, weights.Vector(LayerName(layer, "attn_q.bias"), q_rows, rotated));
      TARE_TRY(const auto k_bias, weights.Vector(LayerName(layer, "attn_k.bias"), k_rows, rotated));
      TARE_TRY(const auto v_bias, weights.Vector(LayerName(layer, "attn_v.bias"), k_rows));
      block->bias_.insert(block->bias_.end(), k_bias.begin(), k_bias.end());
      block->bias_.insert(block->bias_.end(), v_bias.begin(), v_bias.end());
    }
    if (config.head_norms) {
      const RotatedHeads one{config.head_dim, config.rope.dims};
      TARE_TRY(block->query_norm_,
               weights.Vector(LayerName(layer, "attn_q_norm.weight"), config.head_dim, one));
      TARE_TRY(block->key_norm_,
               weights.Vector(LayerName(layer, "attn_k_norm.weight"), config.head_dim, one));
    }
    return block;
  }

 private:
  void FinishHeads(float* first, int count, const std::vector<float>& norm, int half,
                   const float* cosines, const float* sines) const {
    for (int h = 0; h < count; ++h) {
      float* head = first + static_cast<std::ptrdiff_t>(h) * head_dim_;
      if (!norm.empty()) RmsNormRow(head, norm.data(), head_dim_, epsilon_, head);
      Rotate(head, half, cosines, sines);
    }
  }

  int heads_ = 0;
  int kv_heads_ = 0;
  int head_dim_ = 0;
  float epsilon_ = 0.0f;
  float scale_ = 1.0f;
  std::size_t query_size_ = 0;  // heads * head_dim
  std::size_t key_size_ = 0;    // kv_heads * head_dim
  kernels::PackedMatrix qkv_;
  kernels::PackedMatrix output_;
  std::vector<float> bias_;  // [q, k, v] or empty
  std::vector<float> query_norm_, key_norm_;
};

}  // namespace

Result<std::unique_ptr<AttentionBlock>> LoadGroupedQueryAttention(WeightLoader& weights,
                                                                  const ModelConfig& config,
                                                                  int layer) {
  return GroupedQueryAttention::Load(weights, config, layer);
}

}  // namespace tare::model
