#include "model/encoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "kernels/encoder_kernels.h"
#include "kernels/isa.h"
#include "model/blocks.h"
#include "model/memory_need.h"
#include "model/weight_loader.h"

namespace tare::model {
namespace {

// Embedding rows worth waking another thread for.
constexpr std::size_t kRowsPerShare = 16;

struct Norm {
  std::vector<float> weight, bias;  // [hidden]
};

struct Linear {
  kernels::PackedMatrix matrix;
  std::vector<float> bias;  // [rows]; added by whoever reads the product
};

struct EncoderLayer {
  Linear qkv, output, up, down;
  Norm attention_norm, output_norm;  // after the residual
};

class BertEncoder final : public Encoder {
 public:
  const ModelConfig& config() const override { return config_; }
  const SentenceConfig& sentence() const override { return sentence_; }
  std::size_t weight_bytes() const override { return weight_bytes_; }
  kernels::WeightType weight_type() const override { return weight_type_; }

  void Forward(std::span<const TokenId> tokens, std::span<const int> lengths,
               std::span<float> out) override {
    const ModelConfig& c = config_;
    const auto hidden = static_cast<std::size_t>(c.hidden);
    const auto rows = static_cast<std::int64_t>(tokens.size());
    TARE_CHECK(out.size() == lengths.size() * hidden);
    TARE_CHECK(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}) == rows);
    if (rows == 0) return;
    float* x = hidden_.Get(tokens.size() * hidden);
    float* delta = delta_.Get(tokens.size() * hidden);
    float* mixed = mixed_.Get(tokens.size() * hidden);
    float* qkv = projected_.Get(tokens.size() * 3 * hidden);
    float* inner = inner_.Get(tokens.size() * static_cast<std::size_t>(c.intermediate));
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    const auto norm = [&](const Norm& n, const float* add, const Linear* product) {
      kernels::LayerNorm(x, add, product == nullptr ? nullptr : product->bias.data(),
                         n.weight.data(), n.bias.data(), c.norm_epsilon, rows, c.hidden, x, *pool_);
    };
    const auto multiply = [&](const Linear& by, const float* from, float* to) {
      activations_.Set(from, rows, by.matrix.cols());
      kernels::MatMul(by.matrix, activations_, to, 0, *pool_);
    };
    Embed(tokens, lengths, x);
    norm(embedding_norm_, nullptr, nullptr);
    for (const EncoderLayer& layer : layers_) {
      multiply(layer.qkv, x, qkv);
      kernels::AttendBothWays(qkv, layer.qkv.bias.data(), c.heads, c.head_dim, scale, lengths,
                              mixed, *pool_);
      multiply(layer.output, mixed, delta);
      norm(layer.attention_norm, delta, &layer.output);
      multiply(layer.up, x, inner);
      kernels::BiasGelu(inner, layer.up.bias.data(), rows, c.intermediate, *pool_);
      multiply(layer.down, inner, delta);
      norm(layer.output_norm, delta, &layer.down);
    }
    Pool(x, lengths, out);
  }

  Status Load(const Checkpoint& checkpoint, const SentenceConfig& sentence,
              const LoadOptions& options) {
    TARE_CHECK(options.pool != nullptr);
    config_ = checkpoint.config();
    sentence_ = sentence;
    pool_ = options.pool;
    storage_ = checkpoint.storage();
    WeightLoader weights(checkpoint, options);
    const ModelConfig& c = config_;
    TARE_TRY(tokens_, weights.Rows("token_embd.weight", c.vocab, c.hidden));
    TARE_TRY(positions_, weights.Rows("position_embd.weight", c.context_length, c.hidden));
    TARE_TRY(types_, weights.Rows("token_types.weight", c.encoder->token_types, c.hidden));
    TARE_TRY(embedding_norm_, LoadNorm(weights, "token_embd_norm"));
    for (int i = 0; i < c.layers; ++i) {
      EncoderLayer layer;
      const auto name = [&](const char* part) { return LayerName(i, part); };
      const std::string qkv[] = {name("attn_q"), name("attn_k"), name("attn_v")};
      TARE_TRY(layer.qkv, LoadLinear(weights, qkv, c.hidden, c.hidden));
      const std::string output[] = {name("attn_output")};
      TARE_TRY(layer.output, LoadLinear(weights, output, c.hidden, c.hidden));
      TARE_TRY(layer.attention_norm, LoadNorm(weights, name("attn_output_norm")));
      const std::string up[] = {name("ffn_up")};
      TARE_TRY(layer.up, LoadLinear(weights, up, c.intermediate, c.hidden));
      const std::string down[] = {name("ffn_down")};
      TARE_TRY(layer.down, LoadLinear(weights, down, c.hidden, c.intermediate));
      TARE_TRY(layer.output_norm, LoadNorm(weights, name("layer_output_norm")));
      for (const Linear* linear : {&layer.qkv, &layer.output, &layer.up, &layer.down}) {
        weight_bytes_ += linear->matrix.bytes();
      }
      layers_.push_back(std::move(layer));
    }
    TARE_RETURN_IF_ERROR(weights.Finish());
    weight_type_ = weights.layer_type();
    weight_bytes_ += tokens_.data.size() + positions_.data.size() + types_.data.size();
    if (options.progress) options.progress(1.0, "ready");
    return {};
  }

 private:
  Result<Norm> LoadNorm(WeightLoader& weights, const std::string& name) const {
    Norm norm;
    TARE_TRY(norm.weight, weights.Vector(name + ".weight", config_.hidden));
    TARE_TRY(norm.bias, weights.Vector(name + ".bias", config_.hidden));
    return norm;
  }

  // Matrices of `rows` rows each that share their input, as one.
  static Result<Linear> LoadLinear(WeightLoader& weights, std::span<const std::string> names,
                                   int rows, int cols) {
    Linear linear;
    std::vector<MatrixPart> parts;
    for (const std::string& name : names) {
      parts.push_back({name + ".weight", rows, {}});
      TARE_TRY(const std::vector<float> bias, weights.Vector(name + ".bias", rows));
      linear.bias.insert(linear.bias.end(), bias.begin(), bias.end());
    }
    TARE_TRY(linear.matrix, weights.Stacked(parts, cols));
    return linear;
  }

  // The sum of a token's, its position's and the first type's rows.
  void Embed(std::span<const TokenId> tokens, std::span<const int> lengths, float* x) {
    const auto hidden = static_cast<std::size_t>(config_.hidden);
    position_of_.clear();
    for (const int length : lengths) {
      for (int i = 0; i < length; ++i) position_of_.push_back(i);
    }
    std::vector<float> type(hidden);
    kernels::DequantizeRow(types_, 0, type);
    pool_->ParallelFor(tokens.size(), kRowsPerShare, [&](std::size_t begin, std::size_t end) {
      std::vector<float> position(hidden);
      for (std::size_t r = begin; r < end; ++r) {
        float* row = x + r * hidden;
        kernels::DequantizeRow(tokens_, ToInt(tokens[r]), {row, hidden});
        kernels::DequantizeRow(positions_, position_of_[r], position);
        for (std::size_t i = 0; i < hidden; ++i) row[i] += type[i] + position[i];
      }
    });
  }

  void Pool(const float* x, std::span<const int> lengths, std::span<float> out) const {
    const auto hidden = static_cast<std::size_t>(config_.hidden);
    std::vector<float> sum(hidden);
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      const auto length = static_cast<std::size_t>(lengths[s]);
      const std::span<float> vector = out.subspan(s * hidden, hidden);
      std::copy_n(x, hidden, sum.begin());
      if (sentence_.pooling == Pooling::kMean) {
        for (std::size_t t = 1; t < length; ++t) {
          for (std::size_t i = 0; i < hidden; ++i) sum[i] += x[t * hidden + i];
        }
        for (float& value : sum) value /= static_cast<float>(length);
      }
      Shorten(sum, sentence_.normalise, vector);
      x += length * hidden;
    }
  }

  ModelConfig config_;
  SentenceConfig sentence_;
  ThreadPool* pool_ = nullptr;
  std::shared_ptr<const void> storage_;  // what the tables point into
  kernels::TensorView tokens_, positions_, types_;
  Norm embedding_norm_;
  std::vector<EncoderLayer> layers_;
  std::size_t weight_bytes_ = 0;
  kernels::WeightType weight_type_ = kernels::WeightType::kF32;
  Buffer hidden_, delta_, mixed_, projected_, inner_;
  std::vector<int> position_of_;
  kernels::Activations activations_;
};

}  // namespace

bool IsEncoder(const Checkpoint& checkpoint) { return checkpoint.config().encoder.has_value(); }

void Shorten(std::span<const float> vector, bool normalise, std::span<float> out) {
  TARE_CHECK(out.size() <= vector.size());
  double squares = 0.0;
  for (std::size_t i = 0; i < out.size(); ++i) squares += double{vector[i]} * vector[i];
  const double factor = normalise && squares > 0.0 ? 1.0 / std::sqrt(squares) : 1.0;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(vector[i] * factor);
}

Result<std::unique_ptr<Encoder>> LoadEncoder(const Checkpoint& checkpoint,
                                             const SentenceConfig& sentence,
                                             const LoadOptions& options) {
  TARE_RETURN_IF_ERROR(kernels::CheckIsaEnvironment());
  if (!IsEncoder(checkpoint)) {
    return Fail(ErrorKind::kUnsupported, "{}: family {} writes text and makes no embeddings",
                checkpoint.name(), checkpoint.config().family);
  }
  if (options.check_memory) {
    TARE_TRY(const MemoryNeed need, EstimateMemory(checkpoint, options.dtype, 0));
    TARE_TRY(const std::uint64_t available, AvailableMemory());
    TARE_RETURN_IF_ERROR(CheckFits(need, available, checkpoint.name()));
  }
  auto encoder = std::make_unique<BertEncoder>();
  TARE_RETURN_IF_ERROR(encoder->Load(checkpoint, sentence, options));
  return encoder;
}

}  // namespace tare::model
