// Multi-head latent attention. A token's keys and values for all heads are products of one latent
// vector c, and of one rotated key they share: pages keep [c | key], 576 numbers in the published
// models, as one KV head whose leading dimensions are its value.
//
// The products are taken in the absorbed form: with q = [a | b] a head's query and U, V its two
// parts of kv_b, its score (U c) . a is c . (U^T a), and its answer sum p V c is V (sum p c). So
// the heads' queries go into the latent space, attend there, and come back. This is the form with
// the least memory traffic, and it is used for prompts too: the other form (keys and values
// unfolded, fewer operations when many rows share them) rounds differently, and an answer would
// depend on how its prompt was cut into steps.
#include <cmath>
#include <cstring>

#include "kernels/elementwise.h"
#include "model/blocks.h"

namespace tare::model {
namespace {

// Of the latent vectors' norms: published programs leave it at this, whatever the config's is.
constexpr float kLatentEpsilon = 1e-6f;
// Rows worth waking another thread for: norms and copies of a few thousand floats each.
constexpr std::size_t kRowsPerShare = 4;

class LatentAttention : public AttentionBlock {
 public:
  void Forward(Step& step, int layer, const float* x, float* out) const override {
    Workspace& ws = step.workspace;
    const auto rows = static_cast<std::size_t>(step.rows);
    const auto heads = static_cast<std::size_t>(heads_);
    const std::size_t key_width = kv_rank_ + rope_;  // of a latent key
    const std::size_t head_width = nope_ + rope_;    // of a query head

    step.activations.Set(x, step.rows, down_.cols());
    const auto down_width = static_cast<std::size_t>(down_.rows());
    float* down = ws.projected.Get(rows * down_width);
    kernels::MatMul(down_, step.activations, down, 0, step.pool);
    // Adds what adapters say of a product.
    const auto adapt = [&](LoraSite site, const float* from, std::size_t from_stride, float* to,
                           std::size_t to_stride) {
      if (step.lora == nullptr) return;
      step.lora->Add(layer, site, from, static_cast<std::int64_t>(from_stride), to,
                     static_cast<std::int64_t>(to_stride), step.pool);
    };
    adapt(LoraSite::kAttentionInput, x, static_cast<std::size_t>(down_.cols()), down, down_width);
    const std::size_t query_part = down_width - key_width;
    float* keys = ws.keys.Get(rows * key_width);
    float* query_latent = ws.values.Get(rows * q_rank_);
    step.pool.ParallelFor(rows, kRowsPerShare, [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) {
        const float* from = down + r * down_width;
        if (q_rank_ > 0) Norm(from, query_norm_, query_latent + r * q_rank_);
        from += query_part;
        Norm(from, key_norm_, keys + r * key_width);
        std::memcpy(keys + r * key_width + kv_rank_, from + kv_rank_, rope_ * sizeof(float));
      }
    });
    Rotate(step, keys + kv_rank_, key_width, 1, key_width);

    const float* queries = down;
    std::size_t query_stride = down_width;
    if (q_rank_ > 0) {
      query_stride = heads * head_width;
      float* up = ws.queries.Get(rows * query_stride);
      step.activations.Set(query_latent, step.rows, query_up_.cols());
      kernels::MatMul(query_up_, step.activations, up, 0, step.pool);
      adapt(LoraSite::kQueryUp, query_latent, q_rank_, up, query_stride);
      queries = up;
    }
    const std::size_t absorbed_width = heads * key_width;
    float* absorbed = ws.absorbed.Get(rows * absorbed_width);
    step.pool.ParallelFor(rows, kRowsPerShare, [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) {
        for (std::size_t h = 0; h < heads; ++h) {
          std::memcpy(absorbed + r * absorbed_width + h * key_width + kv_rank_,
                      queries + r * query_stride + h * head_width + nope_, rope_ * sizeof(float));
        }
      }
    });
    Rotate(step, absorbed + kv_rank_, absorbed_width, heads_, key_width);
    PerHead(step, key_up_, queries, query_stride, head_width, absorbed, absorbed_width, key_width);
    adapt(LoraSite::kKeyUp, queries, query_stride, absorbed, absorbed_width);

    step.kv.Write(layer, step.sequences, keys, nullptr, step.pool);
    float* mixed = ws.mixed.Get(rows * heads * kv_rank_);
    kernels::Attention(step.kv, layer, heads_, scale_ * step.score_scale, step.sequences, absorbed,
                       mixed, step.pool);
    const std::size_t answer_width = heads * value_;
    float* answers = ws.activated.Get(rows * answer_width);
    PerHead(step, value_up_, mixed, heads * kv_rank_, kv_rank_, answers, answer_width, value_);
    adapt(LoraSite::kValueUp, mixed, heads * kv_rank_, answers, answer_width);
    step.activations.Set(answers, step.rows, output_.cols());
    kernels::MatMul(output_, step.activations, out, 0, step.pool);
    adapt(LoraSite::kAttentionOutput, answers, answer_width, out,
          static_cast<std::size_t>(output_.rows()));
  }

  std::size_t bytes() const override {
    std::size_t sum = down_.bytes() + query_up_.bytes() + output_.bytes();
    for (const auto* set : {&key_up_, &value_up_}) {
      for (const kernels::PackedMatrix& matrix : *set) sum += matrix.bytes();
    }
    return sum;
  }

  static Result<std::unique_ptr<AttentionBlock>> Load(WeightLoader& weights,
                                                      const ModelConfig& config, int layer) {
    auto block = std::make_unique<LatentAttention>();
    const LatentAttentionConfig& latent = *config.latent;
    const auto name = [&](const char* part) { return LayerName(layer, part); };
    const auto size = [](int value) { return static_cast<std::size_t>(value); };
    block->heads_ = config.heads;
    block->q_rank_ = size(latent.q_rank);
    block->kv_rank_ = size(latent.kv_rank);
    block->nope_ = size(latent.nope_dim);
    block->rope_ = size(latent.rope_dim);
    block->value_ = size(latent.value_dim);
    block->scale_ = 1.0f / std::sqrt(static_cast<float>(latent.nope_dim + latent.rope_dim));

    const std::int64_t query_rows =
        std::int64_t{config.heads} * (latent.nope_dim + latent.rope_dim);
    const bool direct = latent.q_rank == 0;
    const MatrixPart down[] = {
        {name(direct ? "attn_q.weight" : "attn_q_a.weight"),
         direct ? query_rows : latent.q_rank,
         {}},
        {name("attn_kv_a_mqa.weight"), latent.kv_rank + latent.rope_dim, {}}};
    TARE_TRY(block->down_, weights.Stacked(down, config.hidden));
    if (!direct) {
      TARE_TRY(block->query_norm_, weights.Vector(name("attn_q_a_norm.weight"), latent.q_rank));
      TARE_TRY(block->query_up_,
               weights.Matrix(name("attn_q_b.weight"), query_rows, latent.q_rank));
    }
    TARE_TRY(block->key_norm_, weights.Vector(name("attn_kv_a_norm.weight"), latent.kv_rank));
    if (weights.Has(name("attn_k_b.weight"))) {  // GGUF: apart, and keys transposed already
      const MatrixSetPart keys[] = {{name("attn_k_b.weight"), latent.kv_rank, nullptr}};
      const MatrixSetPart values[] = {{name("attn_v_b.weight"), latent.value_dim, nullptr}};
      TARE_TRY(block->key_up_,
               weights.Set(keys, config.heads, latent.nope_dim, MatrixRole::kLatent));
      TARE_TRY(block->value_up_,
               weights.Set(values, config.heads, latent.kv_rank, MatrixRole::kLatent));
    } else {
      TARE_RETURN_IF_ERROR(block->Unfold(weights, config, name("attn_kv_b.weight")));
    }
    TARE_TRY(block->output_, weights.Matrix(name("attn_output.weight"), config.hidden,
                                            std::int64_t{config.heads} * latent.value_dim));
    return block;
  }

 private:
  static void Norm(const float* from, const std::vector<float>& weight, float* to) {
    kernels::RmsNormRow(from, weight.data(), kLatentEpsilon,
                        static_cast<std::int64_t>(weight.size()), to);
  }

  // Both files and published program rotate neighbours.
  static void Rotate(Step& step, float* x, std::size_t stride, int heads, std::size_t head_width) {
    kernels::ApplyRope(x, static_cast<std::int64_t>(stride), step.rows, heads,
                       static_cast<int>(head_width), step.angles, step.rope_half,
                       kernels::RopePairs::kNeighbours, step.pool);
  }

  // to[row, head] = matrices[head] * from[row, head], heads `from_width` and `to_width` apart.
  void PerHead(Step& step, const std::vector<kernels::PackedMatrix>& matrices, const float* from,
               std::size_t from_stride, std::size_t from_width, float* to, std::size_t to_stride,
               std::size_t to_width) const {
    std::vector<kernels::MatMulGroup>& groups = step.workspace.experts.groups;
    groups.clear();
    for (std::size_t h = 0; h < matrices.size(); ++h) {
      groups.push_back(
          {&matrices[h], step.rows, to + h * to_width, static_cast<std::int64_t>(to_stride)});
    }
    step.workspace.grouped.Run(
        groups,
        [&](std::size_t head, std::int64_t row, float*) {
          return from + static_cast<std::size_t>(row) * from_stride + head * from_width;
        },
        step.pool);
  }

  // kv_b [heads, nope + value, kv_rank] as the two sets: keys' parts transposed, values' as stored.
  Status Unfold(WeightLoader& weights, const ModelConfig& config, const std::string& name) {
    const std::size_t head_rows = nope_ + value_;
    TARE_TRY(const LoadedTensor tensor,
             weights.Tensor(name, std::int64_t{heads_} * static_cast<std::int64_t>(head_rows),
                            config.latent->kv_rank));
    const kernels::TensorView& stored = tensor.values.view;
    const std::size_t row_bytes = stored.data.size() / static_cast<std::size_t>(stored.rows);
    const auto type = ChooseType(weights.dtype(), MatrixRole::kLatent, {&tensor.form.natural, 1});
    // Blocks of codes do not survive a transposition: one width up instead of rounding twice.
    const auto key_type = type == kernels::WeightType::kInt4 ? kernels::WeightType::kInt8 : type;
    std::vector<float> row(kv_rank_), transposed(kv_rank_ * nope_);
    for (std::size_t h = 0; h < static_cast<std::size_t>(heads_); ++h) {
      for (std::size_t i = 0; i < nope_; ++i) {
        kernels::DequantizeRow(stored, static_cast<std::int64_t>(h * head_rows + i), row);
        for (std::size_t c = 0; c < kv_rank_; ++c) transposed[c * nope_ + i] = row[c];
      }
      const kernels::TensorView keys{kernels::StoredType::kF32, config.latent->kv_rank,
                                     config.latent->nope_dim, std::as_bytes(std::span(transposed))};
      TARE_TRY(kernels::PackedMatrix key_up,
               weights.Derived(fmt::format("{}/keys[{}]", name, h), key_type, keys));
      key_up_.push_back(std::move(key_up));
      const kernels::TensorView values{
          stored.type, config.latent->value_dim, config.latent->kv_rank,
          stored.data.subspan((h * head_rows + nope_) * row_bytes, value_ * row_bytes)};
      TARE_TRY(kernels::PackedMatrix value_up,
               weights.Derived(fmt::format("{}/values[{}]", name, h), type, values));
      value_up_.push_back(std::move(value_up));
    }
    return {};
  }

  int heads_ = 0;
  std::size_t q_rank_ = 0;  // 0: queries are projected directly
  std::size_t kv_rank_ = 0;
  std::size_t nope_ = 0;
  std::size_t rope_ = 0;
  std::size_t value_ = 0;
  float scale_ = 1.0f;
  kernels::PackedMatrix down_;  // [queries or their latent | latent | rotated key]
  std::vector<float> query_norm_, key_norm_;
  kernels::PackedMatrix query_up_;               // of a q_rank
  std::vector<kernels::PackedMatrix> key_up_;    // [heads] of [kv_rank, nope]
  std::vector<kernels::PackedMatrix> value_up_;  // [heads] of [value, kv_rank]
  kernels::PackedMatrix output_;
};

}  // namespace

Result<std::unique_ptr<AttentionBlock>> LoadLatentAttention(WeightLoader& weights,
                                                            const ModelConfig& config, int layer) {
  return LatentAttention::Load(weights, config, layer);
}

}  // namespace tare::model
