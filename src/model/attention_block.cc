// Grouped-query attention: q, k and v from one stacked matrix, laid apart, then biases,
// head norms and rotation as the family has them.
#include <cmath>
#include <cstring>

#include "kernels/elementwise.h"
#include "model/blocks.h"

namespace tare::model {
namespace {

// Rows worth waking another thread for: laying apart moves a few thousand floats each.
constexpr std::size_t kRowsPerShare = 8;

class GroupedQueryAttention : public AttentionBlock {
 public:
  void Forward(Step& step, int layer, const float* x, float* out) const override {
    const auto rows = static_cast<std::size_t>(step.rows);
    Workspace& ws = step.workspace;
    const std::size_t width = query_size_ + 2 * key_size_;
    float* projected = ws.projected.Get(rows * width);
    float* mixed = ws.mixed.Get(rows * query_size_);

    step.activations.Set(x, step.rows, qkv_.cols());
    kernels::MatMul(qkv_, step.activations, projected, 0, step.pool);
    if (step.lora != nullptr) {
      step.lora->Add(layer, LoraSite::kAttentionInput, x, qkv_.cols(), projected,
                     static_cast<std::int64_t>(width), step.pool);
    }
    float* q = projected;
    float* k = q + query_size_;
    float* v = k + key_size_;
    if (rows > 1) {  // one row has q, k and v apart already
      q = ws.queries.Get(rows * query_size_);
      k = ws.keys.Get(rows * key_size_);
      v = ws.values.Get(rows * key_size_);
      step.pool.ParallelFor(rows, kRowsPerShare, [&](std::size_t begin, std::size_t end) {
        for (std::size_t r = begin; r < end; ++r) {
          const float* from = projected + r * width;
          std::memcpy(q + r * query_size_, from, query_size_ * sizeof(float));
          std::memcpy(k + r * key_size_, from + query_size_, key_size_ * sizeof(float));
          std::memcpy(v + r * key_size_, from + query_size_ + key_size_, key_size_ * sizeof(float));
        }
      });
    }
    if (!query_bias_.empty()) {
      AddBias(q, query_bias_, rows);
      AddBias(k, key_bias_, rows);
      AddBias(v, value_bias_, rows);
    }
    FinishHeads(step, q, heads_, query_norm_);
    FinishHeads(step, k, kv_heads_, key_norm_);
    step.kv.Write(layer, step.sequences, k, v, step.pool);
    kernels::Attention(step.kv, layer, heads_, scale_, step.sequences, q, mixed, step.pool);
    step.activations.Set(mixed, step.rows, output_.cols());
    kernels::MatMul(output_, step.activations, out, 0, step.pool);
    if (step.lora != nullptr) {
      step.lora->Add(layer, LoraSite::kAttentionOutput, mixed, output_.cols(), out, output_.rows(),
                     step.pool);
    }
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
      TARE_TRY(block->query_bias_,
               weights.Vector(LayerName(layer, "attn_q.bias"), q_rows, rotated));
      TARE_TRY(block->key_bias_, weights.Vector(LayerName(layer, "attn_k.bias"), k_rows, rotated));
      TARE_TRY(block->value_bias_, weights.Vector(LayerName(layer, "attn_v.bias"), k_rows));
    }
    if (config.head_norms) {
      TARE_TRY(block->query_norm_,
               weights.Vector(LayerName(layer, "attn_q_norm.weight"), config.head_dim, rotated));
      TARE_TRY(block->key_norm_,
               weights.Vector(LayerName(layer, "attn_k_norm.weight"), config.head_dim, rotated));
    }
    return block;
  }

 private:
  static void AddBias(float* to, const std::vector<float>& bias, std::size_t rows) {
    for (std::size_t r = 0; r < rows; ++r, to += bias.size()) {
      for (std::size_t i = 0; i < bias.size(); ++i) to[i] += bias[i];
    }
  }

  // Normalises, where the family does, and rotates all heads of x[rows, count * head_dim].
  void FinishHeads(Step& step, float* x, int count, const std::vector<float>& norm) const {
    if (!norm.empty()) {
      kernels::RmsNorm(x, nullptr, norm.data(), epsilon_, std::int64_t{step.rows} * count,
                       head_dim_, x, step.pool);
    }
    kernels::ApplyRope(x, std::int64_t{count} * head_dim_, step.rows, count, head_dim_, step.angles,
                       step.rope_half, kernels::RopePairs::kHalves, step.pool);
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
  std::vector<float> query_bias_, key_bias_, value_bias_;  // or empty
  std::vector<float> query_norm_, key_norm_;
};

}  // namespace

Result<std::unique_ptr<AttentionBlock>> LoadGroupedQueryAttention(WeightLoader& weights,
                                                                  const ModelConfig& config,
                                                                  int layer) {
  return GroupedQueryAttention::Load(weights, config, layer);
}

}  // namespace tare::model
