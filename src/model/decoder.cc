#include "model/decoder.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/elementwise.h"
#include "model/blocks.h"
#include "model/memory_need.h"
#include "model/weight_loader.h"

namespace tare::model {
namespace {

// Embedding rows worth waking another thread for.
constexpr std::size_t kRowsPerShare = 16;

struct DecoderLayer {
  std::vector<float> attention_norm;
  std::unique_ptr<AttentionBlock> attention;
  std::vector<float> feed_forward_norm;
  std::unique_ptr<FeedForwardBlock> feed_forward;
};

class Decoder : public LanguageModel {
 public:
  const ModelConfig& config() const override { return config_; }
  std::size_t weight_bytes() const override { return weight_bytes_; }
  kernels::WeightType weight_type() const override { return weight_type_; }
  kernels::KvShape kv_shape(kernels::KvType type) const override {
    return KvShapeOf(config_, type);
  }

  const ExpertUse* expert_use() const override {
    return config_.experts ? &ws_.experts.use : nullptr;
  }

  void ResetExpertUse() override {
    if (!config_.experts) return;
    ExpertUse& use = ws_.experts.use;
    use = {.weight_bytes = use.weight_bytes};
    use.first_layer = config_.experts->leading_dense_layers;
    use.layers = config_.layers - use.first_layer;
    use.experts = config_.experts->count;
    use.tokens.assign(static_cast<std::size_t>(use.layers) * static_cast<std::size_t>(use.experts),
                      0);
  }

  void Forward(const ForwardInput& input, kernels::KvPages& kv, std::span<float> logits) override {
    const auto rows = static_cast<int>(input.tokens.size());
    const auto wanted = static_cast<int>(input.logit_rows.size());
    TARE_CHECK(logits.size() ==
               static_cast<std::size_t>(wanted) * static_cast<std::size_t>(config_.vocab));
    if (rows == 0) return;
    const auto hidden = static_cast<std::size_t>(config_.hidden);
    const std::size_t size = static_cast<std::size_t>(rows) * hidden;
    float* x = ws_.hidden.Get(size);
    float* normed = ws_.normed.Get(size);
    float* delta = ws_.delta.Get(size);
    Step step{.sequences = input.sequences,
              .rows = rows,
              .kv = kv,
              .activations = activations_,
              .workspace = ws_,
              .pool = *pool_};
    if (ws_.lora.Begin(input)) step.lora = &ws_.lora;
    Embed(input, x);
    Angles(step);
    ExpertUse& use = ws_.experts.use;
    use.step_touched = use.step_present = 0;

    const ModelConfig& c = config_;
    const float* before = nullptr;  // what the block before has yet to add to x
    for (int i = 0; i < config_.layers; ++i) {
      const DecoderLayer& layer = layers_[static_cast<std::size_t>(i)];
      kernels::RmsNorm(x, before, layer.attention_norm.data(), c.norm_epsilon, rows, c.hidden,
                       normed, *pool_);
      layer.attention->Forward(step, i, normed, delta);
      kernels::RmsNorm(x, delta, layer.feed_forward_norm.data(), c.norm_epsilon, rows, c.hidden,
                       normed, *pool_);
      layer.feed_forward->Forward(step, normed, delta);
      before = delta;
    }
    use.touched += use.step_touched;
    use.present += use.step_present;
    if (wanted == 0) return;
    float* last = ws_.last.Get(static_cast<std::size_t>(wanted) * hidden);
    float* last_delta = ws_.last_delta.Get(static_cast<std::size_t>(wanted) * hidden);
    for (std::size_t i = 0; i < input.logit_rows.size(); ++i) {
      const auto row = static_cast<std::size_t>(input.logit_rows[i]);
      std::memcpy(last + i * hidden, x + row * hidden, hidden * sizeof(float));
      std::memcpy(last_delta + i * hidden, delta + row * hidden, hidden * sizeof(float));
    }
    kernels::RmsNorm(last, last_delta, last_norm_.data(), config_.norm_epsilon, wanted,
                     config_.hidden, last, *pool_);
    activations_.Set(last, wanted, config_.hidden);
    kernels::MatMul(head_, activations_, logits.data(), 0, *pool_);
  }

  static Result<std::unique_ptr<LanguageModel>> Load(const Checkpoint& checkpoint,
                                                     const LoadOptions& options) {
    auto model = std::make_unique<Decoder>();
    TARE_RETURN_IF_ERROR(model->LoadParts(checkpoint, options));
    return model;
  }

 private:
  Status LoadParts(const Checkpoint& checkpoint, const LoadOptions& options) {
    TARE_CHECK(options.pool != nullptr);
    config_ = checkpoint.config();
    pool_ = options.pool;
    storage_ = checkpoint.storage();
    WeightLoader weights(checkpoint, options);
    const ModelConfig& c = config_;

    std::vector<float> divisors;
    if (weights.Has("rope_freqs.weight")) {
      TARE_TRY(divisors, weights.Vector("rope_freqs.weight", c.rope.dims / 2));
    }
    auto rope = MakeRopeTable(c.rope, c.rope.dims, divisors);
    if (!rope) return Context(std::move(rope).error(), "{}", checkpoint.name());
    rope_ = *std::move(rope);

    ResetExpertUse();
    TARE_TRY(embeddings_, weights.Rows("token_embd.weight", c.vocab, c.hidden));
    for (int i = 0; i < c.layers; ++i) {
      DecoderLayer layer;
      TARE_TRY(layer.attention_norm, weights.Vector(LayerName(i, "attn_norm.weight"), c.hidden));
      TARE_TRY(layer.attention, checkpoint.family().attention(weights, c, i));
      TARE_TRY(layer.feed_forward_norm, weights.Vector(LayerName(i, "ffn_norm.weight"), c.hidden));
      TARE_TRY(layer.feed_forward, checkpoint.family().feed_forward(weights, c, i));
      weight_bytes_ += layer.attention->bytes() + layer.feed_forward->bytes();
      ws_.experts.use.weight_bytes += layer.feed_forward->expert_bytes();
      layers_.push_back(std::move(layer));
    }
    TARE_TRY(last_norm_, weights.Vector("output_norm.weight", c.hidden));
    const char* head = c.tied_embeddings ? "token_embd.weight" : "output.weight";
    TARE_TRY(head_, weights.Matrix(head, c.vocab, c.hidden, MatrixRole::kHead));
    TARE_RETURN_IF_ERROR(weights.Finish());
    weight_type_ = weights.layer_type();
    weight_bytes_ += head_.bytes() + embeddings_.data.size();
    if (options.progress) options.progress(1.0, "ready");
    return {};
  }

  void Embed(const ForwardInput& input, float* x) {
    const auto hidden = static_cast<std::size_t>(config_.hidden);
    pool_->ParallelFor(input.tokens.size(), kRowsPerShare, [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) {
        kernels::DequantizeRow(embeddings_, ToInt(input.tokens[r]), {x + r * hidden, hidden});
      }
    });
  }

  // Cosines and sines of every row's position, once for all layers.
  void Angles(Step& step) {
    const auto half = static_cast<std::size_t>(rope_.half());
    const auto rows = static_cast<std::size_t>(step.rows);
    ws_.positions.resize(rows);
    for (const kernels::SequenceRows& sequence : step.sequences) {
      for (int i = 0; i < sequence.num_rows; ++i) {
        ws_.positions[static_cast<std::size_t>(sequence.first_row + i)] =
            sequence.start + i + sequence.rotation;
      }
    }
    const std::span<float> angles(ws_.angles.Get(rows * half * 2), rows * half * 2);
    kernels::RopeAngles(ws_.positions, rope_.frequencies, rope_.magnitude, angles);
    step.angles = angles;
    step.rope_half = rope_.half();
    step.score_scale = rope_.score_scale;
  }

  ModelConfig config_;
  ThreadPool* pool_ = nullptr;
  std::shared_ptr<const void> storage_;  // what embeddings_ points into
  kernels::TensorView embeddings_;
  RopeTable rope_;
  std::vector<DecoderLayer> layers_;
  std::vector<float> last_norm_;
  kernels::PackedMatrix head_;
  std::size_t weight_bytes_ = 0;
  kernels::WeightType weight_type_ = kernels::WeightType::kF32;
  Workspace ws_;
  kernels::Activations activations_;
};

}  // namespace

std::string LayerName(int layer, std::string_view part) {
  return fmt::format("blk.{}.{}", layer, part);
}

Result<std::unique_ptr<LanguageModel>> LoadDecoder(const Checkpoint& checkpoint,
                                                   const LoadOptions& options) {
  return Decoder::Load(checkpoint, options);
}

}  // namespace tare::model
